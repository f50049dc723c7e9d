package main

import (
	"fmt"
	"math"
	"strings"

	"shoal/bench/internal/report"
)

// A comparison is both tools on the same server, run by run in turn; figures are
// medians.
type comparison struct {
	Server   string `json:"server"`
	Model    string `json:"model"`
	Protocol string `json:"protocol"`
	Callers  int    `json:"callers"`
	Ours     run    `json:"shoal_perf"`
	Theirs   run    `json:"perf_analyzer"`
}

// A figure is one measured value, and what it must be: at least or at most Floor.
type figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Floor   float64 `json:"floor,omitempty"`
	AtLeast bool    `json:"at_least,omitempty"`
	NoFloor bool    `json:"no_floor,omitempty"` // told only
}

func (f *figure) missed() bool {
	switch {
	case f.NoFloor:
		return false
	case f.AtLeast:
		return f.Value < f.Floor
	}
	return !(f.Value <= f.Floor) // not a number, either
}

func (f *figure) bound() string {
	switch {
	case f.NoFloor:
		return ""
	case f.AtLeast:
		return fmt.Sprintf(">= %.4g", f.Floor)
	}
	return fmt.Sprintf("<= %.4g", f.Floor)
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
	if c.Model == slowName {
		r.most(name+"throughput apart", 100*apart(c.Ours.Throughput, c.Theirs.Throughput), "%", 100*agreement)
		r.most(name+"p50 apart", 100*apart(c.Ours.P50, c.Theirs.P50), "%", 100*agreement)
		r.most(name+"p95 apart", 100*apart(c.Ours.P95, c.Theirs.P95), "%", 100*agreement)
		r.most(name+"p99 apart", 100*apart(c.Ours.P99, c.Theirs.P99), "%", 100*agreement)
	} else {
		r.most(name+"client CPU a request by perf_analyzer's", c.Ours.CPU/c.Theirs.CPU, "", cheaper)
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

func (r *results) page() string {
	figures := [][]string{{"what", "figure", "unit", "floor", ""}}
	for i := range r.Figures {
		f := &r.Figures[i]
		verdict := ""
		if f.missed() {
			verdict = "missed"
		}
		figures = append(figures, []string{f.Name, fmt.Sprintf("%.4g", f.Value), f.Unit, f.bound(), verdict})
	}
	tools := [][]string{{"server, model, protocol, callers, tool", "infer/s", "p50 us", "p95 us", "p99 us", "client CPU us/request", "client RSS MB"}}
	for _, c := range r.Comparisons {
		for tool, v := range map[string]run{"shoal perf": c.Ours, "perf_analyzer": c.Theirs} {
			tools = append(tools, toolRow(c, tool, v))
		}
		if n := len(tools); strings.HasSuffix(tools[n-2][0], "perf_analyzer") {
			tools[n-2], tools[n-1] = tools[n-1], tools[n-2]
		}
	}
	return fmt.Sprintf("# The load generator\n\n%s- medians of %d rounds, tools in turn\n\n%s\n%s", r.Facts.Markdown(), r.Rounds, report.Table(figures), report.Table(tools))
}

func toolRow(c comparison, tool string, v run) []string {
	return []string{
		fmt.Sprintf("%s, %s, %s, %d, %s", c.Server, c.Model, c.Protocol, c.Callers, tool),
		fmt.Sprintf("%.0f", v.Throughput), fmt.Sprintf("%.0f", v.P50), fmt.Sprintf("%.0f", v.P95), fmt.Sprintf("%.0f", v.P99),
		fmt.Sprintf("%.1f", v.CPU), fmt.Sprintf("%.0f", v.RSSMB),
	}
}
