package main

import (
	"fmt"
	"strings"

	"shoal/bench/internal/report"
)

// results is what goes into triton.json.
type results struct {
	Facts    report.Facts `json:"facts"`
	Servers  []string     `json:"servers"` // the commands that started them
	Rounds   int          `json:"rounds"`
	Duration string       `json:"duration"`
	Pinned   string       `json:"pinned"`
	Rows     []comparison `json:"rows"`
	MLP      []mlpResult  `json:"mlp"`
}

// missed returns the names of the rows whose floor was missed.
func (r results) missed() []string {
	var names []string
	for _, c := range r.Rows {
		if !c.Pass {
			names = append(names, c.Row)
		}
	}
	for _, m := range r.MLP {
		if !m.Pass {
			names = append(names, m.Row)
		}
	}
	return names
}

// table returns the rows as a table that is Markdown and reads well as text.
func (r results) table() string {
	cells := [][]string{{
		"row", "gate", "ratio", "range", "floor", "p99 ratio", "limit", "",
		"CPU us/req Shoal", "Triton", "(stub)", "p50 us Shoal", "Triton", "p99 us Shoal", "Triton", "req/s Shoal", "Triton", "mean batch Shoal", "Triton", "client us/req",
	}}
	for _, c := range r.Rows {
		verdict := "pass"
		if !c.Pass {
			verdict = "MISSED"
		}
		s, t := c.Shoal, c.Triton
		cells = append(cells, []string{
			c.Row, string(c.Gate), fmt.Sprintf("%.2f", c.Ratio), fmt.Sprintf("%.2f-%.2f", c.Least, c.Most), fmt.Sprintf("%.2f", c.Floor),
			fmt.Sprintf("%.2f", c.P99Ratio), fmt.Sprintf("%.2f", c.P99Limit), verdict,
			fmt.Sprintf("%.1f", s.CPU), fmt.Sprintf("%.1f", t.CPU), fmt.Sprintf("(%.1f)", t.WorkerCPU),
			fmt.Sprintf("%.0f", s.P50), fmt.Sprintf("%.0f", t.P50), fmt.Sprintf("%.0f", s.P99), fmt.Sprintf("%.0f", t.P99),
			fmt.Sprintf("%.0f", s.Throughput), fmt.Sprintf("%.0f", t.Throughput), fmt.Sprintf("%.1f", s.MeanBatch), fmt.Sprintf("%.1f", t.MeanBatch), fmt.Sprintf("%.1f", s.ClientCPU),
		})
	}
	return report.Table(cells)
}

// tables returns the tables that have rows.
func (r results) tables() string {
	var parts []string
	if len(r.Rows) > 0 {
		parts = append(parts, r.table())
	}
	if len(r.MLP) > 0 {
		parts = append(parts, "The MLP on Shoal, now, beside a Triton with its ONNX backend, recorded on another day:\n\n"+mlpTable(r.MLP))
	}
	return strings.Join(parts, "\n")
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Shoal beside Triton\n\n")
	b.WriteString(r.Facts.Markdown())
	fmt.Fprintf(&b, "- %d rounds, %s of load a run, the servers in turn; pinned: %s\n", r.Rounds, r.Duration, r.Pinned)
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "- server: `%s`\n", s)
	}
	b.WriteString("\nWritten by `make bench-triton`; bench/README.md says how to read it.\n\n")
	b.WriteString(r.tables())
	return b.String()
}
