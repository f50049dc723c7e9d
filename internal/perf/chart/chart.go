package chart

import "math"

// A Chart is axes and the marks between them.
type Chart struct {
	Title, Desc   string
	Width, Height float64
	X, Y          Axis
	Y2            *Axis // at the right; nil: none
	Marks         []Mark
	Keys          []Key
}

// An Axis has a scale and says what it counts, with the unit.
type Axis struct {
	Label string
	Scale Scale
}

// A Key explains a colour.
type Key struct {
	Name   string
	Colour Colour
	Line   bool // a line, otherwise a field
	Dashed bool
}

// A Mark is something drawn between the axes.
type Mark interface{ draw(f *frame) }

// The margins around the field between the axes.
const (
	roomLeft   = 62
	roomRight  = 18
	roomTop    = 16
	roomBottom = 50
)

// A frame is the field between the axes and what is drawn.
type frame struct {
	*Drawing
	chart                    *Chart
	left, top, width, height float64
}

// Draw draws the chart without the keys: a page puts them elsewhere.
func (c *Chart) Draw() *Drawing {
	f := &frame{
		Drawing: &Drawing{Width: c.Width, Height: c.Height, Title: c.Title, Desc: c.Desc}, chart: c,
		left: roomLeft, top: roomTop, width: c.Width - roomLeft - roomRight, height: c.Height - roomTop - roomBottom,
	}
	if c.Y2 != nil {
		f.width -= roomLeft - roomRight
	}
	for _, m := range c.Marks {
		if b, ok := m.(background); ok {
			b.drawBehind(f)
		}
	}
	f.drawY()
	f.drawX()
	for _, m := range c.Marks {
		m.draw(f)
	}
	return f.Drawing
}

// A background is a mark with a part that lies behind the grid.
type background interface{ drawBehind(f *frame) }

func (f *frame) x(v float64) float64 { return f.left + f.width*f.chart.X.Scale.At(v) }

func (f *frame) y(v float64, second bool) float64 {
	scale := f.chart.Y.Scale
	if second && f.chart.Y2 != nil {
		scale = f.chart.Y2.Scale
	}
	return f.top + f.height*(1-scale.At(v))
}

func (f *frame) at(p Point, second bool) Point { return Point{f.x(p.X), f.y(p.Y, second)} }

func (f *frame) right() float64  { return f.left + f.width }
func (f *frame) bottom() float64 { return f.top + f.height }

func (f *frame) drawY() {
	for _, t := range f.chart.Y.Scale.Ticks() {
		y := f.y(t.Value, false)
		f.line(Point{f.left, y}, Point{f.right(), y}, Grid, 1)
		f.text(Point{f.left - 7, y + 4}, End, "tick", Muted, t.Name)
	}
	f.upward(14, f.chart.Y.Label)
	if second := f.chart.Y2; second != nil {
		for _, t := range second.Scale.Ticks() {
			f.text(Point{f.right() + 7, f.y(t.Value, true) + 4}, Start, "tick", Muted, t.Name)
		}
		f.upward(f.Drawing.Width-6, second.Label)
	}
}

func (f *frame) upward(x float64, label string) {
	f.add(Shape{At: Point{x, f.top + f.height/2}, Anchor: Middle, Letter: "label", Fill: Muted, Text: label, Upward: true})
}

const (
	// letterWidth is the width of an average letter of a tick.
	letterWidth = 6.8
	// narrow is how much larger letters are where a page is narrow.
	narrow = 1.35
)

func (f *frame) drawX() {
	f.line(Point{f.left, f.bottom()}, Point{f.right(), f.bottom()}, Muted, 1)
	ticks := f.chart.X.Scale.Ticks()
	every, narrowEvery := f.every(ticks, 1), f.every(ticks, narrow)
	for i, t := range ticks {
		if i%every != 0 {
			continue
		}
		x := f.x(t.Value)
		f.line(Point{x, f.bottom()}, Point{x, f.bottom() + 4}, Muted, 1)
		name := Point{x, f.bottom() + 18}
		if beyond := x + letterWidth*float64(len([]rune(t.Name)))/2 - f.Drawing.Width; beyond > 0 {
			name.X -= beyond // it would be cut
		}
		f.add(Shape{At: name, Anchor: Middle, Letter: "tick", Fill: Muted, Text: t.Name, Spare: i%narrowEvery != 0})
	}
	f.text(Point{f.left + f.width/2, f.Drawing.Height - 8}, Middle, "label", Muted, f.chart.X.Label)
}

// every returns n when every n-th tick has room for its name in the larger
// letters.
func (f *frame) every(ticks []Tick, larger float64) int {
	for every := 1; ; every++ {
		free, fits := math.Inf(-1), true
		for i := 0; i < len(ticks) && fits; i += every {
			half := larger * (letterWidth*float64(len([]rune(ticks[i].Name)))/2 + 2)
			x := f.x(ticks[i].Value)
			fits = x-half >= free
			free = x + half
		}
		if fits {
			return every
		}
	}
}
