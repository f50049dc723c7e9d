package main

import (
	"fmt"
	"slices"
	"strings"

	"shoal/bench/internal/report"
)

// What a figure may be at most. An allocation now and then is the runtime's own:
// it gives goroutines that park on channels their records.
const (
	cpuFloor      = 1000 // ns of CPU for one request
	allocFloor    = 0.01
	latenessFloor = 60 // us, the median in an idle process
)

// A cost is what all rounds at one number of callers came to.
type cost struct {
	Callers   int     `json:"callers"`
	CPU       float64 `json:"cpu_ns"` // medians
	Allocs    float64 `json:"allocs"`
	MeanBatch float64 `json:"mean_batch"`
	Least     float64 `json:"cpu_ns_least"`
	Most      float64 `json:"cpu_ns_most"`
	Rounds    []once  `json:"rounds"`
}

// A lateness says how long after the end of their queue delay requests started,
// in microseconds.
type lateness struct {
	Name    string  `json:"name"`
	Callers int     `json:"callers_beside"`
	Floor   float64 `json:"floor_p50_us,omitempty"` // zero when nothing is asked
	P50     float64 `json:"p50_us"`
	P95     float64 `json:"p95_us"`
	P99     float64 `json:"p99_us"`
	Max     float64 `json:"max_us"`
}

// results is what goes into batcher.json.
type results struct {
	Facts    report.Facts `json:"facts"`
	Rounds   int          `json:"rounds"`
	Requests int          `json:"requests"`
	Waits    int          `json:"waits"`
	DelayUS  float64      `json:"delay_us"`
	Costs    []cost       `json:"costs"`
	Lateness []lateness   `json:"lateness"`
}

func summarise(callers int, rounds []once) cost {
	c := cost{Callers: callers, Rounds: rounds}
	var cpu, allocs, batch []float64
	for _, r := range rounds {
		cpu, allocs, batch = append(cpu, r.CPU), append(allocs, r.Allocs), append(batch, r.MeanBatch)
	}
	c.CPU, c.Allocs, c.MeanBatch = report.Median(cpu), report.Median(allocs), report.Median(batch)
	c.Least, c.Most = slices.Min(cpu), slices.Max(cpu)
	return c
}

// missed returns the floors that were missed, in words.
func (r results) missed() []string {
	var words []string
	for _, c := range r.Costs {
		if c.CPU > cpuFloor {
			words = append(words, fmt.Sprintf("%d callers: %.0f ns of CPU (at most %d)", c.Callers, c.CPU, cpuFloor))
		}
		if c.Allocs > allocFloor {
			words = append(words, fmt.Sprintf("%d callers: %.3f allocations (none)", c.Callers, c.Allocs))
		}
	}
	for _, l := range r.Lateness {
		if l.Floor > 0 && l.P50 > l.Floor {
			words = append(words, fmt.Sprintf("%s: %.0f us late (at most %.0f)", l.Name, l.P50, l.Floor))
		}
	}
	return words
}

func (r results) tables() string {
	cells := [][]string{{"callers", "CPU ns/request", "range", "floor", "allocations", "floor", "mean batch"}}
	for _, c := range r.Costs {
		cells = append(cells, []string{
			fmt.Sprint(c.Callers), fmt.Sprintf("%.0f", c.CPU), fmt.Sprintf("%.0f-%.0f", c.Least, c.Most), verdict(c.CPU, cpuFloor, "%.0f"),
			fmt.Sprintf("%.3f", c.Allocs), verdict(c.Allocs, allocFloor, "%.2f"), fmt.Sprintf("%.1f", c.MeanBatch),
		})
	}
	late := [][]string{{fmt.Sprintf("lateness of a delay of %.0f us", r.DelayUS), "p50 us", "floor", "p95", "p99", "max"}}
	for _, l := range r.Lateness {
		name, asked := l.Name, ""
		if l.Callers > 0 {
			name = fmt.Sprintf("%s, %d callers", l.Name, l.Callers)
		}
		if l.Floor > 0 {
			asked = verdict(l.P50, l.Floor, "%.0f")
		}
		late = append(late, []string{
			name, fmt.Sprintf("%.0f", l.P50), asked,
			fmt.Sprintf("%.0f", l.P95), fmt.Sprintf("%.0f", l.P99), fmt.Sprintf("%.0f", l.Max),
		})
	}
	return report.Table(cells) + "\n" + report.Table(late)
}

func verdict(got, floor float64, format string) string {
	if got > floor {
		return fmt.Sprintf(format+" MISSED", floor)
	}
	return fmt.Sprintf(format+" pass", floor)
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# The batcher alone\n\n")
	b.WriteString(r.Facts.Markdown())
	fmt.Fprintf(&b, "- medians of %d rounds of %d requests; %d delays of %.0f us\n", r.Rounds, r.Requests, r.Waits, r.DelayUS)
	b.WriteString("\nWritten by `make bench-batcher`; bench/README.md says how to read it.\n\n")
	b.WriteString(r.tables())
	return b.String()
}
