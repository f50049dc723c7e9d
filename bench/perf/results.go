package main

import (
	"fmt"
	"math"

	"shoal/bench/internal/report"
)

// A figure is one measured value, and what it must be: at least or at most Floor, or
// no further than that from zero.
type figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Low     float64 `json:"low,omitempty"` // of the 95 % interval; both zero when there is none
	High    float64 `json:"high,omitempty"`
	Unit    string  `json:"unit"`
	Floor   float64 `json:"floor,omitempty"`
	AtLeast bool    `json:"at_least,omitempty"`
	Within  bool    `json:"within,omitempty"`
	NoFloor bool    `json:"no_floor,omitempty"` // told only
	// Spread is how far perf_analyzer's own rounds are from each other in this
	// figure: the middle half of them, by the median, in percent.
	Spread float64 `json:"perf_analyzer_spread,omitempty"`
}

// missed says that the figure is not what it must be, and that perf_analyzer knows
// what it is.
func (f *figure) missed() bool { return f.beyond() && !f.doubtful() }

// beyond says that the figure is not what it must be.
func (f *figure) beyond() bool {
	switch {
	case f.NoFloor:
		return false
	case f.AtLeast:
		return !(f.Value >= f.Floor) // not a number, either
	case f.Within:
		return !(math.Abs(f.Value) <= f.Floor)
	}
	return !(f.Value <= f.Floor)
}

// doubtful says that perf_analyzer does not agree with itself on the figure.
func (f *figure) doubtful() bool { return f.Within && f.Spread > f.Floor }

func (f *figure) bound() string {
	switch {
	case f.NoFloor:
		return ""
	case f.AtLeast:
		return fmt.Sprintf(">= %.4g", f.Floor)
	case f.Within:
		return fmt.Sprintf("within %.4g", f.Floor)
	}
	return fmt.Sprintf("<= %.4g", f.Floor)
}

func (f *figure) interval() string {
	if f.Low == 0 && f.High == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g to %.3g", f.Low, f.High)
}

func (f *figure) remark() string {
	switch {
	case f.missed():
		return "missed"
	case f.doubtful():
		return fmt.Sprintf("perf_analyzer's own rounds: %.0f %% apart", f.Spread)
	}
	return ""
}

// results is what goes into perf.json.
type results struct {
	Facts       report.Facts `json:"facts"`
	Rounds      int          `json:"rounds"`
	Figures     []figure     `json:"figures"`
	Comparisons []comparison `json:"comparisons"`
}

func (r *results) most(name string, value float64, unit string, floor float64) {
	r.Figures = append(r.Figures, figure{Name: name, Value: value, Unit: unit, Floor: floor})
}

func (r *results) least(name string, value float64, unit string, floor float64) {
	r.Figures = append(r.Figures, figure{Name: name, Value: value, Unit: unit, Floor: floor, AtLeast: true})
}

func (r *results) tell(name string, value float64, unit string) {
	r.Figures = append(r.Figures, figure{Name: name, Value: value, Unit: unit, NoFloor: true})
}

// The floors of a comparison: how far figures may be apart, and what a request
// may cost the client by what it costs perf_analyzer, with callers enough that
// neither tool waits.
const (
	agreement  = 0.10
	cheaper    = 0.35
	cpuCallers = 16
)

// apart returns by how much two figures differ.
func apart(a, b float64) float64 { return math.Abs(a/b - 1) }

// judge adds the figures of a comparison. Perf_analyzer takes as much of the
// machine for a small request as the server does, and so slows what it measures:
// what it says is held against ours on a model that takes its time, what it costs
// on one that takes none.
func (r *results) judge(c comparison) {
	r.Comparisons = append(r.Comparisons, c)
	name := fmt.Sprintf("%s, %s, %s, %d callers: ", c.Server, c.Model, c.Protocol, c.Callers)
	if c.Model != slowName {
		v, low, high := c.ratio(cpu)
		r.Figures = append(r.Figures, figure{Name: name + "client CPU a request by perf_analyzer's", Value: v, Low: low, High: high, Floor: cheaper})
		return
	}
	agree := func(what string, get func(run) float64, v, low, high float64) {
		percent := func(ratio float64) float64 { return 100 * (ratio - 1) }
		r.Figures = append(r.Figures, figure{
			Name: name + what + " apart from perf_analyzer's", Value: percent(v), Low: percent(low), High: percent(high), Unit: "%",
			Floor: 100 * agreement, Within: true, Spread: 100 * report.Spread(c.each(theirRun, get)),
		})
	}
	for _, f := range []struct {
		what string
		get  func(run) float64
	}{{"throughput", throughput}, {"p50", p50}} {
		v, low, high := c.ratio(f.get)
		agree(f.what, f.get, v, low, high)
	}
	for _, f := range []struct {
		what string
		q    float64
		get  func(run) float64
	}{{"p95", 0.95, p95}, {"p99", 0.99, p99}} {
		v, low, high := c.tail(f.q)
		agree(f.what, f.get, v, low, high)
	}
}

// missed returns the floors that were missed, in words.
func (r *results) missed() []string {
	var list []string
	for i := range r.Figures {
		if f := &r.Figures[i]; f.missed() {
			list = append(list, fmt.Sprintf("%s %.4g %s (%s)", f.Name, f.Value, f.Unit, f.bound()))
		}
	}
	return list
}

// summary counts the figures that both tools have.
func (r *results) summary() string {
	all, within, missed, doubtful := 0, 0, 0, 0
	for i := range r.Figures {
		f := &r.Figures[i]
		switch {
		case !f.Within:
			continue
		case !f.beyond():
			within++
		case f.missed():
			missed++
		default:
			doubtful++
		}
		all++
	}
	return fmt.Sprintf("%d of %d figures agree with perf_analyzer's within %.0f %%; %d do not; %d do not where its own rounds are further apart than that",
		within, all, 100*agreement, missed, doubtful)
}

func (r *results) page() string {
	figures := [][]string{{"what", "figure", "unit", "95 % interval", "floor", "remark"}}
	for i := range r.Figures {
		f := &r.Figures[i]
		figures = append(figures, []string{f.Name, fmt.Sprintf("%.4g", f.Value), f.Unit, f.interval(), f.bound(), f.remark()})
	}
	tools := [][]string{{"server, model, protocol, callers, tool", "infer/s", "p50 us", "p95 us", "p99 us", "client CPU us/request", "client RSS MB"}}
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		tools = append(tools, c.toolRow("shoal perf", ourRun), c.toolRow("perf_analyzer", theirRun))
	}
	return fmt.Sprintf("# The load generator\n\n%s- %d rounds of each comparison (half as many for CPU), the tool that goes first in turn\n- %s\n\n%s\n%s",
		r.Facts.Markdown(), r.Rounds, r.summary(), report.Table(figures), report.Table(tools))
}

func (c *comparison) toolRow(name string, tool func(pair) run) []string {
	v := c.summed(tool)
	return []string{
		fmt.Sprintf("%s, %s, %s, %d, %s", c.Server, c.Model, c.Protocol, c.Callers, name),
		fmt.Sprintf("%.0f", v.Throughput), fmt.Sprintf("%.0f", v.P50), fmt.Sprintf("%.0f", v.P95), fmt.Sprintf("%.0f", v.P99),
		fmt.Sprintf("%.1f", v.CPU), fmt.Sprintf("%.0f", v.RSSMB),
	}
}
