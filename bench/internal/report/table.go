package report

import (
	"strings"
	"unicode/utf8"
)

// Table lays cells out as a Markdown table with aligned columns, so that it
// reads well in a terminal too. The first row is the heading; the first column
// is text, the others are set to the right.
func Table(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 2)
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			b.WriteString("| ")
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + pad + " ")
			} else {
				b.WriteString(pad + cell + " ")
			}
		}
		b.WriteString("|\n")
		if n == 0 {
			rule(&b, widths)
		}
	}
	return b.String()
}

// rule writes the line below the heading.
func rule(b *strings.Builder, widths []int) {
	for i, w := range widths {
		dashes := strings.Repeat("-", w)
		if i > 0 {
			dashes = dashes[1:] + ":"
		}
		b.WriteString("| " + dashes + " ")
	}
	b.WriteString("|\n")
}
