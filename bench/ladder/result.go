package main

import (
	"fmt"
	"slices"
	"strings"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/report"
)

// A cell is a step with a number of callers.
type cell struct {
	Step    string           `json:"step"`
	Callers int              `json:"callers"`
	Median  measure.Sample   `json:"median"`
	Rounds  []measure.Sample `json:"rounds"`

	step int // in steps
}

// A gain is what a step comes to beside the first one at the same number of
// callers: medians of the rounds' own ratios, for the machine's speed drifts from
// round to round.
type gain struct {
	Step       string  `json:"step"`
	Callers    int     `json:"callers"`
	Throughput float64 `json:"throughput_ratio"`
	Least      float64 `json:"throughput_ratio_least"`
	Most       float64 `json:"throughput_ratio_most"`
	P95        float64 `json:"p95_ratio"`
	CPU        float64 `json:"cpu_ratio"`
}

// A result is what climbing with a model came to.
type result struct {
	Model  string  `json:"model"`
	Config string  `json:"settings"`
	Floor  float64 `json:"throughput_floor"`
	Cells  []cell  `json:"cells"`
	Gains  []gain  `json:"gains"`
}

// results is what goes into ladder.json.
type results struct {
	Facts    report.Facts `json:"facts"`
	Server   string       `json:"server"`
	Rounds   int          `json:"rounds"`
	Duration string       `json:"duration"`
	Models   []result     `json:"models"`
}

// judge takes the medians and compares the steps.
func judge(a ascent, cells []cell) result {
	r := result{
		Model: a.model.Name, Floor: a.floor, Cells: cells,
		Config: fmt.Sprintf("max_batch_size: %d, one thread for each instance", a.model.MaxBatch),
	}
	first := make(map[int]*cell) // by callers
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Median = measure.Medians(c.Rounds)
		if c.step == 0 {
			first[c.Callers] = c
			continue
		}
		r.Gains = append(r.Gains, compare(*first[c.Callers], *c))
	}
	return r
}

func compare(first, c cell) gain {
	ratios := func(of func(measure.Sample) float64) []float64 {
		var all []float64
		for i := range c.Rounds {
			all = append(all, of(c.Rounds[i])/of(first.Rounds[i]))
		}
		return all
	}
	throughput := ratios(func(s measure.Sample) float64 { return s.Throughput })
	return gain{
		Step: c.Step, Callers: c.Callers,
		Throughput: report.Median(throughput), Least: slices.Min(throughput), Most: slices.Max(throughput),
		P95: report.Median(ratios(func(s measure.Sample) float64 { return s.P95 })),
		CPU: report.Median(ratios(func(s measure.Sample) float64 { return s.CPU })),
	}
}

// judged says whether the floors are about a gain: that of dynamic batching.
func (g gain) judged() bool { return g.Step == steps[1].title && g.Callers == judgedCallers }

// missed returns the floors that were missed, in words.
func (r results) missed() []string {
	var words []string
	for _, m := range r.Models {
		for _, g := range m.Gains {
			if !g.judged() {
				continue
			}
			if g.Throughput < m.Floor {
				words = append(words, fmt.Sprintf("%s: %.1f times the throughput (at least %.0f)", m.Model, g.Throughput, m.Floor))
			}
			if g.P95 >= 1 {
				words = append(words, fmt.Sprintf("%s: %.2f times the p95 (less than 1)", m.Model, g.P95))
			}
		}
	}
	return words
}

func (r results) tables() string {
	var b strings.Builder
	for i, m := range r.Models {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s (%s)\n\n%s\n%s", m.Model, m.Config, m.table(), m.gainTable())
	}
	return b.String()
}

// table returns what was measured.
func (r result) table() string {
	cells := [][]string{{"step", "callers", "infer/s", "p50 ms", "p95 ms", "p99 ms", "mean batch", "queue ms", "CPU us/req", "client us/req"}}
	for _, c := range r.Cells {
		m := c.Median
		cells = append(cells, []string{
			c.Step, fmt.Sprint(c.Callers), fmt.Sprintf("%.0f", m.Throughput),
			fmt.Sprintf("%.2f", m.P50/1e3), fmt.Sprintf("%.2f", m.P95/1e3), fmt.Sprintf("%.2f", m.P99/1e3),
			fmt.Sprintf("%.1f", m.MeanBatch), fmt.Sprintf("%.2f", m.Queue/1e3), fmt.Sprintf("%.0f", m.CPU), fmt.Sprintf("%.0f", m.ClientCPU),
		})
	}
	return report.Table(cells)
}

// gainTable returns what the steps brought.
func (r result) gainTable() string {
	cells := [][]string{{"beside no batching", "callers", "throughput", "range", "floor", "p95", "CPU/req"}}
	for _, g := range r.Gains {
		floor := ""
		if g.judged() {
			floor = fmt.Sprintf("%.0fx and p95 falls: pass", r.Floor)
			if g.Throughput < r.Floor || g.P95 >= 1 {
				floor = fmt.Sprintf("%.0fx and p95 falls: MISSED", r.Floor)
			}
		}
		cells = append(cells, []string{
			g.Step, fmt.Sprint(g.Callers), fmt.Sprintf("%.2fx", g.Throughput), fmt.Sprintf("%.2f-%.2f", g.Least, g.Most), floor,
			fmt.Sprintf("%.2fx", g.P95), fmt.Sprintf("%.2fx", g.CPU),
		})
	}
	return report.Table(cells)
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# The batching ladder\n\n")
	b.WriteString(r.Facts.Markdown())
	fmt.Fprintf(&b, "- %d rounds, %s of load a run (twice that for credsweeper), the steps in turn\n- server: `%s`\n", r.Rounds, r.Duration, r.Server)
	b.WriteString("\nWritten by `make bench-ladder`; bench/README.md says how to read it.\n\n![throughput and p95 of each step](ladder.svg)\n\n")
	b.WriteString(r.tables())
	return b.String()
}
