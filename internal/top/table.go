package top

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"
)

// A tableLine is a line of a table, with its cells padded to equal width.
type tableLine struct {
	cells []string
	row   *Row // nil for the titles
	total bool
}

// table lays the rows out, the titles first and the total last.
func table(cols []column, rows []Row, sum *Row) []tableLine {
	lines := []tableLine{{}}
	for _, c := range cols {
		lines[0].cells = append(lines[0].cells, c.title)
	}
	for i := range rows {
		lines = append(lines, cells(cols, &rows[i]))
	}
	last := cells(cols, sum)
	last.cells[0], last.total = "TOTAL", true
	lines = append(lines, last)
	for i, c := range cols {
		width := 0
		for _, l := range lines {
			width = max(width, lipgloss.Width(l.cells[i]))
		}
		for _, l := range lines {
			pad := strings.Repeat(" ", width-lipgloss.Width(l.cells[i]))
			if c.right() {
				l.cells[i] = pad + l.cells[i]
			} else {
				l.cells[i] += pad
			}
		}
	}
	return lines
}

func cells(cols []column, r *Row) tableLine {
	l := tableLine{row: r}
	for _, c := range cols {
		l.cells = append(l.cells, printable(c.text(r)))
	}
	return l
}

const gap = "  " // between columns

// WriteTable writes the report for people, and for scripts that cut columns.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	for _, l := range table(columns(len(r.Servers)), r.Models, &r.Total) {
		text := strings.Join(l.cells, gap)
		if l.row != nil && l.row.Reason != "" {
			text += gap + printable(l.row.Reason)
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	for _, l := range r.extraLines() {
		b.WriteString(l + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Faults lists what could not be read, a sentence each.
func (r *Report) Faults() []string {
	var list []string
	for _, s := range r.Servers {
		if s.Error != "" {
			list = append(list, printable(s.Error))
		}
		if s.NoDetail != "" {
			list = append(list, fmt.Sprintf("no quantiles, queue and instances of %s: %s", s.URL, printable(s.NoDetail)))
		}
	}
	return list
}

// Reached reports whether every server could be read.
func (r *Report) Reached() bool {
	for _, s := range r.Servers {
		if s.Error != "" {
			return false
		}
	}
	return true
}
