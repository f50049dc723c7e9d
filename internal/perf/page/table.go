package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

// A table has a heading and rows of cells; the first cell names the row.
type table struct {
	Head []string
	Rows [][]string
}

// table has the figures of every level.
func (r *run) table() table {
	t := table{Head: []string{"load", "infer/s", "mean", "p50", "p90", "p95", "p99", "p99.9", "longest", "queue", "infer", "mean batch", "client CPU", "server CPU", "failed", "spread"}}
	for _, l := range r.levels {
		w := l.Merged
		row := []string{levelName(l.Load), fmt.Sprintf("%.1f", w.Throughput()) + within(figureOf(l, result.FigureThroughput)), span(w.Latency.Mean())}
		for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999} {
			cell := span(w.Latency.Quantile(q))
			if q == 0.5 || q == 0.99 {
				cell += within(figureOf(l, fmt.Sprintf("p%.0f", 100*q)))
			}
			row = append(row, cell)
		}
		row = append(row, span(w.Latency.Max()))
		if s := w.Server; s != nil {
			row = append(row, span(s.Queue.Mean()), span(s.Infer.Mean()), chart.Number(s.MeanBatch()))
		} else {
			row = append(row, "", "", "")
		}
		row = append(row, span(w.ClientCPU/time.Duration(w.Requests)), "", fmt.Sprint(w.Failed), fmt.Sprintf("%.1f %%", 100*min(99, max(l.Spread.Throughput, l.Spread.Latency))))
		if r.Target.ServerPID > 0 {
			row[13] = span(w.ServerCPU / time.Duration(w.Requests))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// within formats an interval as a share of the figure.
func within(f *result.Figure) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf(" ±%s %%", chart.Number(max(0.1, 50*(f.High-f.Low)/f.Value)))
}

// missed is the verdict on a goal that was not met.
const missed = "missed"

// goals says which goals were reached; nil when none were set.
func (r *run) goals() *table {
	t := &table{Head: []string{"goal"}}
	rows := make(map[string][]string)
	var order []string
	for i := range r.Levels {
		l := &r.Levels[i]
		if len(l.Goals) == 0 {
			continue
		}
		t.Head = append(t.Head, levelName(l.Load))
		for _, g := range l.Goals {
			if rows[g.Goal] == nil {
				order = append(order, g.Goal)
				rows[g.Goal] = []string{g.Goal}
			}
			verdict := missed
			if g.Met {
				verdict = "met"
			}
			for len(rows[g.Goal]) < len(t.Head)-1 {
				rows[g.Goal] = append(rows[g.Goal], "")
			}
			rows[g.Goal] = append(rows[g.Goal], verdict)
		}
	}
	for _, goal := range order {
		t.Rows = append(t.Rows, rows[goal])
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// A cause is why requests failed, and where most of them did.
type cause struct {
	text   string
	failed int64
	worst  *result.Level
	most   int64
}

// errors counts failures by cause; nil when there are none.
func (r *run) errors() *table {
	causes := make(map[string]*cause)
	for i := range r.Levels {
		l := &r.Levels[i]
		counts := make(map[string]int64)
		for j := range l.Windows {
			for text, n := range l.Windows[j].Errors {
				counts[text] += n
			}
		}
		for text, n := range counts {
			c := causes[text]
			if c == nil {
				c = &cause{text: text}
				causes[text] = c
			}
			if c.failed += n; n > c.most {
				c.most, c.worst = n, l
			}
		}
	}
	if len(causes) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(maps.Values(causes), func(a, b *cause) int {
		return cmp.Or(cmp.Compare(b.failed, a.failed), cmp.Compare(a.text, b.text))
	})
	_, all := r.failed()
	t := &table{Head: []string{"cause", "requests", "share of all", "most at"}}
	for i, c := range sorted {
		if i == maxErrorRows {
			t.Rows = append(t.Rows, []string{fmt.Sprintf("and %d more, which are in the JSON", len(sorted)-i), "", "", ""})
			break
		}
		at := ""
		if c.worst != nil {
			at = levelName(c.worst.Load)
		}
		t.Rows = append(t.Rows, []string{shorten(c.text), fmt.Sprint(c.failed), fmt.Sprintf("%.2f %%", share(float64(c.failed), float64(all))), at})
	}
	return t
}

const (
	// maxErrorRows and maxCause bound the errors on the page.
	maxErrorRows = 40
	maxCause     = 300
)

func shorten(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > maxCause {
		return string(r[:maxCause]) + "…"
	}
	return s
}
