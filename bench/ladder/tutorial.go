package main

import (
	"fmt"
	"os"
	"strings"

	"shoal/bench/internal/report"
)

// The part of the tutorial between these lines is written by this program, so
// that its figures are those of the last run.
const (
	figuresBegin = "<!-- figures: written by make bench-ladder -->\n"
	figuresEnd   = "<!-- end of figures -->\n"
)

// updateTutorial puts the figures into the file at path.
func (r results) updateTutorial(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err := replaceFigures(string(b), r.figures())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// replaceFigures returns the page with other figures.
func replaceFigures(page, figures string) (string, error) {
	before, rest, begun := strings.Cut(page, figuresBegin)
	_, after, ended := strings.Cut(rest, figuresEnd)
	if !begun || !ended {
		return "", fmt.Errorf("no place for the figures: it is from the line %q to %q", figuresBegin, figuresEnd)
	}
	return before + figuresBegin + figures + figuresEnd + after, nil
}

// figures returns a short table for each model.
func (r results) figures() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nMeasured by `%s` on %s, %d cores (%s), load generator on the same cores; medians of %d rounds.\n",
		r.Facts.Command, r.Facts.Date, r.Facts.Cores, r.Facts.CPU, r.Rounds)
	for _, m := range r.Models {
		fmt.Fprintf(&b, "\n**%s** (%s)\n\n%s", m.Model, m.Config, m.shortTable())
		for _, g := range m.Gains {
			if g.judged() {
				fmt.Fprintf(&b, "\nAt %d callers dynamic batching answers %.1f times the requests, with %.2f times the p95 and %.2f times the CPU for each.\n",
					g.Callers, g.Throughput, g.P95, g.CPU)
			}
		}
	}
	b.WriteString("\n")
	return b.String()
}

// shortTable returns a line for each number of callers.
func (r result) shortTable() string {
	rows := [][]string{{"callers", "no batching: infer/s", "p95 ms", "dynamic: infer/s", "p95 ms", "mean batch", "2 instances: infer/s", "p95 ms", "mean batch"}}
	line := make(map[int]int) // of rows, by callers
	for _, c := range r.Cells {
		if c.step == 0 {
			line[c.Callers] = len(rows)
			rows = append(rows, []string{fmt.Sprint(c.Callers)})
		}
		row := &rows[line[c.Callers]]
		*row = append(*row, fmt.Sprintf("%.0f", c.Median.Throughput), fmt.Sprintf("%.1f", c.Median.P95/1e3))
		if c.step > 0 {
			*row = append(*row, fmt.Sprintf("%.1f", c.Median.MeanBatch))
		}
	}
	return report.Table(rows)
}
