package diagram

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"shoal/internal/perf/chart"
)

// Sizes of the drawing.
const (
	letterWidth = 7.0 // of a letter, at most; the mean is less
	headWidth   = 8.6 // of a letter of a name
	lineHeight  = 17.0
	padding     = 12.0
	gap         = 28.0 // between the boxes of a row
	margin      = 24.0
	arrow       = 7.0
)

// A place is a box of the drawing, or where a long edge passes a row.
type place struct {
	node     int // -1 for an edge that passes
	row      int
	x, y     float64 // of its middle, and of its top
	width    float64
	height   float64
	in, out  []int // the links
	weighted float64
}

// A link is an edge, or a part of one between two rows.
type link struct {
	from, to int // places
	labels   []string
}

// A layout has the places by rows.
type layout struct {
	places []place
	links  []link
	rows   [][]int
}

// SVG returns the graph as a complete SVG file, which follows the light or dark
// scheme of its reader.
func (g *Graph) SVG() string {
	l := g.layout()
	d := &chart.Drawing{Title: g.Name, Desc: g.describe()}
	for _, p := range l.places {
		d.Width = max(d.Width, p.x+p.width/2+margin)
		d.Height = max(d.Height, p.y+p.height+margin)
	}
	d.Width = max(d.Width, 2*margin+headWidth*1.4*float64(len(g.Name)), 2*margin+letterWidth*float64(len(g.caption())))
	text := func(x, y float64, anchor chart.Anchor, letter string, c chart.Colour, s string) {
		d.Shapes = append(d.Shapes, chart.Shape{At: chart.Point{X: x, Y: y}, Anchor: anchor, Letter: letter, Fill: c, Text: s})
	}
	text(margin, margin+14, chart.Start, "title", chart.Ink, g.Name)
	if c := g.caption(); c != "" {
		text(margin, margin+34, chart.Start, "note", chart.Muted, c)
	}
	for i := range l.links {
		l.drawLink(d, i)
	}
	for i := range l.places {
		g.drawPlace(d, &l.places[i])
	}
	return d.File()
}

// describe says in words what the picture shows.
func (g *Graph) describe() string {
	var words []string
	for _, n := range g.nodes {
		if n.kind == step {
			words = append(words, strings.Join(append([]string{n.name}, n.notes...), ", "))
		}
	}
	return fmt.Sprintf("The steps of model %s: %s.", g.Name, strings.Join(words, "; "))
}

// layout gives everything its place: nodes in rows, each below those whose tensors
// it reads, with as few crossings as a few sweeps find.
func (g *Graph) layout() *layout {
	l := &layout{}
	rows := g.rows()
	for i, n := range g.nodes {
		p := place{node: i, row: rows[i], width: headWidth*float64(len(n.name)) + 2*padding, height: lineHeight*float64(1+len(n.notes)) + 2*padding - 4}
		for _, note := range n.notes {
			p.width = max(p.width, letterWidth*float64(len(note))+2*padding)
		}
		if n.kind != step {
			p.height = lineHeight + 10
		}
		l.places = append(l.places, p)
	}
	for _, e := range g.edges {
		from := e.from
		for row := rows[e.from] + 1; row < rows[e.to]; row++ {
			l.places = append(l.places, place{node: -1, row: row, width: labelsWidth(e.labels)})
			l.link(from, len(l.places)-1, nil)
			from = len(l.places) - 1
		}
		l.link(from, e.to, e.labels)
	}
	for i := range l.places {
		p := &l.places[i]
		for len(l.rows) <= p.row {
			l.rows = append(l.rows, nil)
		}
		l.rows[p.row] = append(l.rows[p.row], i)
		wide := 0.0
		for _, in := range p.in {
			wide += labelsWidth(l.links[in].labels) + padding
		}
		p.width = max(p.width, wide)
	}
	for range 6 {
		for _, row := range l.rows {
			l.sort(row, func(p *place) []int { return p.in }, func(k link) int { return k.from })
		}
		for _, row := range slices.Backward(l.rows) {
			l.sort(row, func(p *place) []int { return p.out }, func(k link) int { return k.to })
		}
	}
	l.place()
	return l
}

func (l *layout) link(from, to int, labels []string) {
	l.links = append(l.links, link{from, to, labels})
	l.places[from].out = append(l.places[from].out, len(l.links)-1)
	l.places[to].in = append(l.places[to].in, len(l.links)-1)
}

func labelsWidth(labels []string) float64 {
	w := 0.0
	for _, s := range labels {
		w = max(w, letterWidth*float64(len(s)))
	}
	return w
}

// rows returns the row of each node: inputs are in the first, outputs in the last.
func (g *Graph) rows() []int {
	rows := make([]int, len(g.nodes))
	last := 0
	for range g.nodes { // the longest path has no more edges than there are nodes
		changed := false
		for _, e := range g.edges {
			if rows[e.to] <= rows[e.from] {
				rows[e.to], changed = rows[e.from]+1, true
			}
		}
		if !changed {
			break
		}
	}
	for i := range rows {
		rows[i] = min(rows[i], len(g.nodes)) // a circle, which does not load
		last = max(last, rows[i])
	}
	for i, n := range g.nodes {
		if n.kind == output {
			rows[i] = last
		}
	}
	return rows
}

// sort orders a row by the mean position of its neighbours.
func (l *layout) sort(row []int, links func(*place) []int, other func(link) int) {
	position := make(map[int]int)
	for _, r := range l.rows {
		for i, p := range r {
			position[p] = i
		}
	}
	for i, p := range row {
		list := links(&l.places[p])
		sum := float64(i)
		if len(list) > 0 {
			sum = 0
			for _, k := range list {
				sum += float64(position[other(l.links[k])])
			}
			sum /= float64(len(list))
		}
		l.places[p].weighted = sum
	}
	slices.SortStableFunc(row, func(a, b int) int {
		switch d := l.places[a].weighted - l.places[b].weighted; {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return 0
	})
}

// place gives the places coordinates.
func (l *layout) place() {
	for range 4 {
		for _, row := range l.rows {
			l.spread(row)
		}
	}
	left := math.Inf(1)
	for _, p := range l.places {
		left = min(left, p.x-p.width/2)
	}
	y := margin + 58
	for _, row := range l.rows {
		height, labels := 0.0, 0
		for _, i := range row {
			p := &l.places[i]
			p.x += margin - left
			height = max(height, p.height)
			for _, k := range p.in {
				labels = max(labels, len(l.links[k].labels))
			}
		}
		if labels > 0 {
			y += 34 + lineHeight*float64(labels)
		}
		for _, i := range row {
			l.places[i].y = y
			if l.places[i].node < 0 {
				l.places[i].height = height
			}
		}
		y += height
	}
}

// spread puts the places of a row side by side, each as near as can be to the
// middle of its neighbours.
func (l *layout) spread(row []int) {
	right, moved := math.Inf(-1), 0.0
	for _, i := range row {
		p := &l.places[i]
		want, n := 0.0, 0
		for _, k := range p.in {
			want, n = want+l.places[l.links[k].from].x, n+1
		}
		for _, k := range p.out {
			want, n = want+l.places[l.links[k].to].x, n+1
		}
		if n > 0 {
			want /= float64(n)
		}
		p.x = max(want, right+gap+p.width/2)
		moved += p.x - want
		right = p.x + p.width/2
	}
	for _, i := range row {
		l.places[i].x -= moved / float64(len(row))
	}
}

// ends returns where a link begins and ends: side by side with the other links of
// its places.
func (l *layout) ends(k int) (a, b chart.Point) {
	from, to := &l.places[l.links[k].from], &l.places[l.links[k].to]
	a = chart.Point{X: port(from, from.out, k, func(o int) float64 { return l.places[l.links[o].to].x }), Y: from.y + from.height}
	b = chart.Point{X: port(to, to.in, k, func(o int) float64 { return l.places[l.links[o].from].x }), Y: to.y}
	return a, b
}

// port returns the x of link k among the links of one side of a place, which are
// ordered by where they go.
func port(p *place, side []int, k int, at func(int) float64) float64 {
	order := slices.Clone(side)
	slices.SortStableFunc(order, func(a, b int) int { return int(math.Round(at(a) - at(b))) })
	n := float64(len(order))
	return p.x + p.width*((float64(slices.Index(order, k))+0.5)/n-0.5)
}

// drawLink draws a curve with an arrow, and the tensors' names where it ends.
func (l *layout) drawLink(d *chart.Drawing, k int) {
	a, b := l.ends(k)
	ends := l.places[l.links[k].to].node >= 0
	tip := b
	if ends {
		tip.Y -= arrow
	}
	const points = 24
	var path []chart.Point
	for i := range points + 1 {
		t := float64(i) / points
		s := 3*t*t - 2*t*t*t
		path = append(path, chart.Point{X: a.X + (tip.X-a.X)*s, Y: a.Y + (tip.Y-a.Y)*t})
	}
	if l.places[l.links[k].from].node < 0 { // from where the edge passes a row
		path = append([]chart.Point{{X: a.X, Y: a.Y - l.places[l.links[k].from].height}}, path...)
	}
	d.Shapes = append(d.Shapes, chart.Shape{Points: path, Stroke: chart.Grey, Width: 1.5})
	if !ends {
		return
	}
	d.Shapes = append(d.Shapes, chart.Shape{
		Points: []chart.Point{{X: b.X - arrow/2, Y: tip.Y}, {X: b.X + arrow/2, Y: tip.Y}, b}, Closed: true, Fill: chart.Grey,
	})
	labels := l.links[k].labels
	for i, s := range labels {
		y := b.Y - arrow - 6 - lineHeight*float64(len(labels)-1-i)
		w := letterWidth * float64(len(s)) / 2
		d.Shapes = append(d.Shapes,
			chart.Shape{Points: rectangle(b.X-w, y-12, 2*w, 16), Closed: true, Fill: chart.Paper},
			chart.Shape{At: chart.Point{X: b.X, Y: y}, Anchor: chart.Middle, Letter: "tick", Fill: chart.Muted, Text: s})
	}
}

// drawPlace draws the box of a node.
func (g *Graph) drawPlace(d *chart.Drawing, p *place) {
	if p.node < 0 {
		return
	}
	n := g.nodes[p.node]
	left := p.x - p.width/2
	fill, stroke := chart.Shade, chart.Blue
	if n.kind != step {
		fill, stroke = chart.Paper, chart.Grey
	}
	d.Shapes = append(d.Shapes, chart.Shape{Points: rectangle(left, p.y, p.width, p.height), Closed: true, Fill: fill, Stroke: stroke, Width: 1.5, Dashed: n.kind != step})
	if n.share > 0 {
		d.Shapes = append(d.Shapes, chart.Shape{
			Points: rectangle(left, p.y+p.height-5, p.width*min(1, n.share), 5), Closed: true, Fill: chart.Orange,
			Tip: fmt.Sprintf("%.1f %% of the time of a request", 100*n.share),
		})
	}
	y := p.y + padding + 10
	if n.kind != step {
		y = p.y + p.height/2 + 5
	}
	d.Shapes = append(d.Shapes, chart.Shape{At: chart.Point{X: p.x, Y: y}, Anchor: chart.Middle, Letter: "head", Fill: chart.Ink, Text: n.name})
	for i, note := range n.notes {
		at := chart.Point{X: p.x, Y: y + lineHeight*float64(i+1)}
		d.Shapes = append(d.Shapes, chart.Shape{At: at, Anchor: chart.Middle, Letter: "note", Fill: chart.Muted, Text: note})
	}
}

func rectangle(x, y, width, height float64) []chart.Point {
	return []chart.Point{{X: x, Y: y}, {X: x + width, Y: y}, {X: x + width, Y: y + height}, {X: x, Y: y + height}}
}
