package main

import (
	"fmt"
	"math"
	"strings"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/report"
)

// results is what goes into models.json: the facts of the last run, and cells of this and
// of earlier ones.
type results struct {
	Facts    report.Facts `json:"facts"`
	Rounds   int          `json:"rounds"`
	Slices   int          `json:"slices"`
	Duration string       `json:"duration"`
	Runtime  string       `json:"onnxruntime"`
	Pinned   bool         `json:"pinned"`
	Costs    []modelCost  `json:"costs"`
	Cells    []result     `json:"cells"` // losers first
}

// tables returns the cells and what the models cost.
func (r results) tables() string {
	return r.cellTable() + "\n" + r.summary() + "\n" + r.costTable()
}

func (r results) cellTable() string {
	heading := []string{"cell", "", "missed"}
	static := []string{"static: req/s", "95 %", "p50", "p99", "best setting"}
	triton := []string{"Triton: req/s", "95 %", "p50", "p99", "CPU"}
	heading = append(append(append(heading, static...), triton...), "of limit")
	for _, who := range []string{"Shoal", "static", "Triton"} {
		heading = append(heading, who+" req/s", "p50 ms", "p99 ms", "batch", "CPU us", "cores")
	}
	heading = append(heading, "measured", "commit")
	rows := [][]string{heading}
	for _, c := range r.Cells {
		verdict := "pass"
		if len(c.Missed) > 0 {
			verdict = "MISSED"
		}
		name := c.Cell
		if c.Pinned {
			name += ", pinned"
		}
		row := []string{name, verdict, strings.Join(c.Missed, ", ")}
		row = append(row, ratios(c.ToStatic)[:4]...)
		row = append(row, c.StaticName)
		row = append(row, ratios(c.ToTriton)...)
		row = append(row, fmt.Sprintf("%.2f", c.OfLimit))
		row = append(row, figures(&c.Shoal)...)
		row = append(row, figures(c.Static)...)
		row = append(row, figures(c.Triton)...)
		row = append(row, c.Date, c.Commit)
		rows = append(rows, row)
	}
	return report.Table(rows)
}

// ratios returns the cells of a comparison: throughput and where it lies with 95 %
// confidence, p50, p99 and CPU.
func ratios(c *comparison) []string {
	if c == nil {
		return []string{"", "", "", "", ""}
	}
	return []string{fmt.Sprintf("%.2f", c.Throughput), fmt.Sprintf("%.2f-%.2f", c.Low, c.High), fmt.Sprintf("%.2f", c.P50), fmt.Sprintf("%.2f", c.P99), fmt.Sprintf("%.2f", c.CPU)}
}

// figures returns the cells of a side's medians.
func figures(s *measure.Sample) []string {
	if s == nil {
		return []string{"", "", "", "", "", ""}
	}
	return []string{
		fmt.Sprintf("%.0f", s.Throughput), fmt.Sprintf("%.2f", s.P50/1e3), fmt.Sprintf("%.2f", s.P99/1e3),
		fmt.Sprintf("%.1f", s.MeanBatch), fmt.Sprintf("%.0f", s.CPU), fmt.Sprintf("%.2f", s.CPU*s.Throughput/1e6),
	}
}

// summary says in a few lines what all cells came to.
func (r results) summary() string {
	var b strings.Builder
	if share, cells := r.close(); cells > 0 {
		fmt.Fprintf(&b, "- To the best static setting: %.0f %% of %d cells have at least %v of its throughput; geometric mean %.3f.\n",
			100*share, cells, staticClose, r.mean(func(c result) *comparison { return c.ToStatic }))
		less := func(of float64) float64 {
			worse, _ := r.share(func(c *comparison) bool { return c.High < of })
			return 100 * worse
		}
		fmt.Fprintf(&b, "- Beyond chance (the whole 95 %% interval): %.0f %% of the cells have less than %v of it, %.0f %% less than %v.\n",
			less(staticClose), staticClose, less(staticFloor), staticFloor)
	}
	if mean := r.mean(func(c result) *comparison { return c.ToTriton }); !math.IsNaN(mean) {
		fmt.Fprintf(&b, "- To Triton: geometric mean of the throughput %.3f.\n", mean)
	}
	return b.String()
}

// mean returns the geometric mean of the throughput in all cells that have the
// comparison; not a number if none has.
func (r results) mean(of func(result) *comparison) float64 {
	sum, n := 0.0, 0
	for _, c := range r.Cells {
		if to := of(c); to != nil {
			sum += math.Log(to.Throughput)
			n++
		}
	}
	return math.Exp(sum / float64(n))
}

// costTable says what batches cost ONNX Runtime alone.
func (r results) costTable() string {
	heading := []string{"ONNX Runtime alone, ms a batch", "instances"}
	for _, n := range aloneRows {
		heading = append(heading, fmt.Sprintf("%d rows", n))
	}
	rows := [][]string{heading}
	seen := make(map[string]bool)
	for _, m := range r.Costs {
		key := fmt.Sprint(m.Model, m.Instances)
		if seen[key] {
			continue
		}
		seen[key] = true
		row := []string{m.Model, fmt.Sprint(m.Instances)}
		for i := range aloneRows {
			cost := ""
			if i < len(m.Batches) {
				cost = fmt.Sprintf("%.3f", m.Batches[i].Micros/1e3)
			}
			row = append(row, cost)
		}
		rows = append(rows, row)
	}
	return report.Table(rows)
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Batching on models of many costs\n\n")
	b.WriteString(r.Facts.Markdown())
	fmt.Fprintf(&b, "- %d rounds, %s of load a run, the sides in turn; ONNX Runtime %s; servers and clients on cores of their own: %v\n",
		r.Rounds, r.Duration, r.Runtime, r.Pinned)
	b.WriteString("\nThat is the last run. The table also has the cells of earlier ones, each with its commit. Losers are first.\n" +
		"Written by `make bench-models`; bench/README.md says how to read it, models-notes.md what was tried.\n\n")
	b.WriteString(r.tables())
	return b.String()
}
