package main

import (
	"fmt"
	"math"
	"strings"

	"shoal/bench/internal/measure"
)

// The plot is written by hand: four panels of bars need a scale and some
// rectangles, and the well-kept plotting library that can be had (gonum/plot)
// would bring nine modules into the server's go.mod.

// Sizes in pixels.
const (
	panelWidth   = 450
	panelHeight  = 250
	panelLeft    = 58 // room for the numbers of the axis
	panelTop     = 34
	panelBottom  = 40
	headerHeight = 66
)

// colours are those of the steps: told apart by the colour-blind and in print.
var colours = []string{"#a9b4c0", "#2b6cb0", "#e0852b"}

// A panel is one chart: groups of bars, a bar for each step.
type panel struct {
	title  string
	groups []string    // below each group
	values [][]float64 // by step, then group
}

// plot returns throughput and p95 of every model as an SVG image.
func (r results) plot() string {
	height := headerHeight + 2*panelHeight
	width := panelWidth * len(r.Models)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" role="img">`+"\n", width, height, width, height)
	b.WriteString("<title>Throughput and p95 latency on each step of the batching ladder</title>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text(&b, 16, 24, "start", 15, "#1a202c", "What batching brings, by number of callers")
	x := 16
	for i, s := range steps {
		fmt.Fprintf(&b, `<rect x="%d" y="38" width="12" height="12" fill="%s"/>`+"\n", x, colours[i])
		text(&b, float64(x+18), 49, "start", 12, "#2d3748", s.title)
		x += 18 + 7*len(s.title) + 14
	}
	for i, m := range r.Models {
		left := float64(i * panelWidth)
		m.panel(m.Model+": inferences per second, higher is better", func(s measure.Sample) float64 { return s.Throughput }).draw(&b, left, headerHeight)
		m.panel(m.Model+": p95 latency in ms, lower is better", func(s measure.Sample) float64 { return s.P95 / 1e3 }).draw(&b, left, headerHeight+panelHeight)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// panel picks a figure of every cell.
func (r result) panel(title string, of func(measure.Sample) float64) panel {
	p := panel{title: title, values: make([][]float64, len(steps))}
	for _, c := range r.Cells {
		if c.step == 0 {
			p.groups = append(p.groups, fmt.Sprint(c.Callers))
		}
		p.values[c.step] = append(p.values[c.step], of(c.Median))
	}
	return p
}

// draw writes the panel with its corner at (left, top).
func (p panel) draw(b *strings.Builder, left, top float64) {
	most := 0.0
	for _, values := range p.values {
		for _, v := range values {
			most = max(most, v)
		}
	}
	unit := tick(most)
	limit := unit * math.Ceil(most*1.06/unit) // room for the number above the highest bar
	x0, x1 := left+panelLeft, left+panelWidth-12
	y0, y1 := top+panelHeight-panelBottom, top+panelTop
	height := func(v float64) float64 { return v / limit * (y0 - y1) }

	text(b, left+16, top+18, "start", 13, "#1a202c", p.title)
	for v := 0.0; v <= limit+unit/2; v += unit {
		y := y0 - height(v)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#e2e8f0"/>`+"\n", x0, y, x1, y)
		text(b, x0-6, y+4, "end", 11, "#4a5568", number(v))
	}
	group := (x1 - x0) / float64(len(p.groups))
	bar := group * 0.84 / float64(len(p.values))
	for g, name := range p.groups {
		from := x0 + group*float64(g) + group*0.08
		for s, values := range p.values {
			h := height(values[g])
			x := from + bar*float64(s)
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x+1, y0-h, bar-2, h, colours[s])
			text(b, x+bar/2, y0-h-3, "middle", 9, "#2d3748", label(values[g]))
		}
		text(b, from+group*0.42, y0+15, "middle", 11, "#4a5568", name)
	}
	text(b, (x0+x1)/2, y0+31, "middle", 11, "#4a5568", "callers")
}

// tick returns a round step of an axis that gives it four to ten marks.
func tick(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	switch n := most / power; {
	case n < 2:
		return power / 5
	case n < 5:
		return power / 2
	default:
		return power
	}
}

// label writes the number above a bar, in three digits at least.
func label(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// number writes a mark of an axis, with commas between thousands.
func number(v float64) string {
	if v != math.Trunc(v) {
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// text writes words that hold nothing to escape: titles and numbers of ours.
func text(b *strings.Builder, x, y float64, anchor string, size int, colour, words string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="%s">%s</text>`+"\n", x, y, anchor, size, colour, words)
}
