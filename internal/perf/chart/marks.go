package chart

// A Line joins points, and may show them too.
type Line struct {
	Points []Point
	Tips   []string // of the points; nil: none
	Colour Colour
	Width  float64 // 0 means 2
	Dashed bool
	Dots   bool // show the points
	Second bool // by the axis at the right
}

func (l Line) draw(f *frame) {
	var path []Point
	for _, p := range l.Points {
		path = append(path, f.at(p, l.Second))
	}
	width := l.Width
	if width == 0 {
		width = 2
	}
	if len(path) > 1 {
		f.add(Shape{Points: path, Stroke: l.Colour, Width: width, Dashed: l.Dashed})
	}
	if !l.Dots {
		return
	}
	for i, p := range l.Points {
		s := Shape{Radius: 3.5, At: f.at(p, l.Second), Fill: l.Colour, Stroke: Paper, Width: 1}
		if i < len(l.Tips) {
			s.Tip = l.Tips[i]
		}
		f.add(s)
	}
}

// A Ring is a single highlighted point or, filled with the paper's colour, a
// faint one.
type Ring struct {
	At     Point
	Colour Colour
	Radius float64
	Second bool
	Filled bool
	Tip    string
}

func (r Ring) draw(f *frame) {
	s := Shape{Radius: r.Radius, At: f.at(r.At, r.Second), Stroke: r.Colour, Fill: Paper, Width: 1.6, Tip: r.Tip}
	if r.Filled {
		s.Fill = r.Colour
	}
	f.add(s)
}

// A Bar stands between two values of the x axis, or on a band when From and To
// are around it.
type Bar struct {
	From, To  float64 // on the x axis
	Low, High float64
	Colour    Colour
	Tip       string
	Gap       float64 // pixels left free at its right
}

// widestBar keeps a single bar from filling the field.
const widestBar = 90

func (b Bar) draw(f *frame) {
	x, right := f.x(b.From), f.x(b.To)-b.Gap
	if spare := right - x - widestBar; spare > 0 {
		x, right = x+spare/2, right-spare/2
	}
	y, bottom := f.y(b.High, false), f.y(b.Low, false)
	if bottom <= y || right <= x {
		return
	}
	f.add(Shape{Points: box(x, y, right-x, bottom-y), Closed: true, Fill: b.Colour, Tip: b.Tip})
}

// A Stretch shades a part of the x axis.
type Stretch struct{ From, To float64 }

func (s Stretch) drawBehind(f *frame) {
	x, right := f.x(s.From), f.x(s.To)
	f.add(Shape{Points: box(x, f.top, right-x, f.height), Closed: true, Fill: Shade})
}

func (Stretch) draw(*frame) {}

// A Wall is a line across the field at a value of the x axis.
type Wall struct {
	X      float64
	Colour Colour
	Dashed bool
}

func (w Wall) draw(f *frame) {
	x := f.x(w.X)
	f.add(Shape{Points: []Point{{x, f.top}, {x, f.bottom()}}, Stroke: w.Colour, Width: 1.2, Dashed: w.Dashed})
}

// A Whisker is an error bar: vertical, or horizontal for a value of the x axis.
type Whisker struct {
	At        Point
	Low, High float64
	Level     bool
	Colour    Colour
}

func (w Whisker) draw(f *frame) {
	const end = 3 // half the length of the strokes at its ends
	low, high := Point{w.At.X, w.Low}, Point{w.At.X, w.High}
	dx, dy := float64(end), 0.0
	if w.Level {
		low, high = Point{w.Low, w.At.Y}, Point{w.High, w.At.Y}
		dx, dy = 0, end
	}
	a, b := f.inside(f.at(low, false)), f.inside(f.at(high, false))
	f.line(a, b, w.Colour, 1.2)
	for _, p := range []Point{a, b} {
		f.line(Point{p.X - dx, p.Y - dy}, Point{p.X + dx, p.Y + dy}, w.Colour, 1.2)
	}
}

// inside moves a point into the field.
func (f *frame) inside(p Point) Point {
	return Point{min(max(p.X, f.left), f.right()), min(max(p.Y, f.top), f.bottom())}
}

// A Note is a few words at a point.
type Note struct {
	At     Point
	DX, DY float64 // away from it, in pixels
	Anchor Anchor
	Text   string
	Colour Colour
	Second bool
	Spare  bool // may be left out when there is little space
}

func (n Note) draw(f *frame) {
	at := f.at(n.At, n.Second)
	f.add(Shape{At: Point{at.X + n.DX, at.Y + n.DY}, Anchor: n.Anchor, Letter: "note", Fill: n.Colour, Text: n.Text, Spare: n.Spare})
}
