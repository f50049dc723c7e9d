package chart

// A Drawing is a list of shapes on a sheet, in the order in which they are drawn.
type Drawing struct {
	Width, Height float64
	// Title and Desc describe the drawing for screen readers.
	Title, Desc string
	Shapes      []Shape
}

// A Point is a place on the sheet; y grows downwards.
type Point struct{ X, Y float64 }

// A Shape is a path, a circle or a text, depending on which fields are set.
type Shape struct {
	Points []Point // a path
	Closed bool
	Radius float64 // a circle around At
	At     Point
	Text   string // its baseline begins, ends or is centred at At
	Letter string // class of the text: tick, label, note, head, title
	Anchor Anchor
	Upward bool // the text is rotated to read upwards

	Stroke, Fill Colour
	Width        float64 // of the stroke
	Dashed       bool
	Tip          string // shown under the pointer
	// Spare marks text that is left out when there is little space.
	Spare bool
}

// An Anchor says which part of a text lies at its point.
type Anchor string

// The anchors.
const (
	Start  Anchor = "start"
	Middle Anchor = "middle"
	End    Anchor = "end"
)

func (d *Drawing) add(s Shape) { d.Shapes = append(d.Shapes, s) }

func (d *Drawing) line(a, b Point, c Colour, width float64) {
	d.add(Shape{Points: []Point{a, b}, Stroke: c, Width: width})
}

func (d *Drawing) text(at Point, anchor Anchor, letter string, c Colour, text string) {
	d.add(Shape{At: at, Anchor: anchor, Letter: letter, Fill: c, Text: text})
}

// box returns the corners of a rectangle.
func box(x, y, width, height float64) []Point {
	return []Point{{x, y}, {x + width, y}, {x + width, y + height}, {x, y + height}}
}

// place adds the shapes of another drawing, moved.
func (d *Drawing) place(o *Drawing, x, y float64) {
	for _, s := range o.Shapes {
		moved := make([]Point, len(s.Points))
		for i, p := range s.Points {
			moved[i] = Point{p.X + x, p.Y + y}
		}
		s.Points = moved
		s.At = Point{s.At.X + x, s.At.Y + y}
		d.add(s)
	}
}
