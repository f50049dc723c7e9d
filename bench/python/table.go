package main

import (
	"fmt"
	"strings"

	"shoal/bench/internal/report"
)

// results is what goes into python.json.
type results struct {
	Facts    report.Facts `json:"facts"`
	Servers  []string     `json:"servers"` // the commands that started them
	Rounds   int          `json:"rounds"`
	Duration string       `json:"duration"`
	Trips    int          `json:"trips"` // in a round
	Trip     *tripResult  `json:"trip,omitempty"`
	Rows     []comparison `json:"rows"`
}

// missed names the floors that were missed, with their figures.
func (r results) missed() (all []string) {
	if r.Trip != nil {
		for _, f := range r.Trip.Floors {
			if !f.Pass {
				all = append(all, fmt.Sprintf("%s: %s %.2f %s (at most %v)", tripRow, f.Name, f.Value, f.Unit, f.Limit))
			}
		}
	}
	for _, c := range r.Rows {
		for _, v := range c.Verdicts {
			if !v.Pass {
				all = append(all, fmt.Sprintf("%s: %s %.2f of %s's (want %s %v)", c.Row, v.Figure, v.Ratio, v.Against, v.Sign, v.Limit))
			}
		}
	}
	return all
}

func word(pass bool) string {
	if pass {
		return "pass"
	}
	return "MISSED"
}

// tripTable has the floors of the round trip.
func (r results) tripTable() string {
	cells := [][]string{{"round trip", "unit", "median", "range", "floor", ""}}
	for _, f := range r.Trip.Floors {
		cells = append(cells, []string{
			f.Name, f.Unit, fmt.Sprintf("%.2f", f.Value), fmt.Sprintf("%.2f-%.2f", f.Least, f.Most), fmt.Sprintf("<= %v", f.Limit), word(f.Pass),
		})
	}
	return report.Table(cells)
}

// floorTable has the floors of the rows.
func (r results) floorTable() string {
	cells := [][]string{{"row", "against", "figure", "ratio", "range", "floor", ""}}
	for _, c := range r.Rows {
		for _, v := range c.Verdicts {
			cells = append(cells, []string{
				c.Row, v.Against, string(v.Figure), fmt.Sprintf("%.2f", v.Ratio), fmt.Sprintf("%.2f-%.2f", v.Least, v.Most), fmt.Sprintf("%s %v", v.Sign, v.Limit), word(v.Pass),
			})
		}
	}
	return report.Table(cells)
}

// figureTable has every server's figures.
func (r results) figureTable() string {
	cells := [][]string{{"row", "server", "req/s", "p50 us", "p99 us", "CPU us/req", "of it workers", "mean batch", "client us/req"}}
	for _, c := range r.Rows {
		for _, name := range c.Servers {
			s := c.Medians[name]
			batch := ""
			if s.MeanBatch > 0 {
				batch = fmt.Sprintf("%.1f", s.MeanBatch)
			}
			cells = append(cells, []string{
				c.Row, name, fmt.Sprintf("%.0f", s.Throughput), fmt.Sprintf("%.0f", s.P50), fmt.Sprintf("%.0f", s.P99),
				fmt.Sprintf("%.1f", cpu.of(s)), fmt.Sprintf("%.1f", s.WorkerCPU), batch, fmt.Sprintf("%.1f", s.ClientCPU),
			})
		}
	}
	return report.Table(cells)
}

// tables returns the tables that have rows.
func (r results) tables() string {
	var parts []string
	if r.Trip != nil {
		parts = append(parts, r.tripTable())
	}
	if len(r.Rows) > 0 {
		parts = append(parts, r.floorTable(), r.figureTable())
	}
	return strings.Join(parts, "\n")
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Python models on Shoal and beside it\n\n")
	b.WriteString(r.Facts.Markdown())
	fmt.Fprintf(&b, "- %d rounds, %s of load a run, the servers in turn and the others paused; %d round trips a round\n", r.Rounds, r.Duration, r.Trips)
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "- server: `%s`\n", s)
	}
	b.WriteString("\nWritten by `make bench-python`; bench/README.md says how to read it.\n\n")
	b.WriteString(r.tables())
	return b.String()
}
