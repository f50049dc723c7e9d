package chart

import (
	"bufio"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strconv"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pngScale is how many pixels a unit of a drawing has: enough for a slide.
const pngScale = 2

// PNG writes the drawing as an image, in the light colours.
func (d *Drawing) PNG(w io.Writer) error {
	c := &canvas{image: image.NewRGBA(image.Rect(0, 0, int(math.Ceil(d.Width*pngScale)), int(math.Ceil(d.Height*pngScale))))}
	draw.Draw(c.image, c.image.Bounds(), image.NewUniform(lightColour(Paper)), image.Point{}, draw.Src)
	for i := range d.Shapes {
		if err := c.shape(&d.Shapes[i]); err != nil {
			return err
		}
	}
	b := bufio.NewWriter(w)
	if err := png.Encode(b, c.image); err != nil {
		return err
	}
	return b.Flush()
}

func lightColour(c Colour) color.RGBA {
	for _, p := range palette {
		if p.name == c {
			v, err := strconv.ParseUint(p.light[1:], 16, 32)
			if err != nil {
				panic("BUG: the colour " + p.light)
			}
			return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255}
		}
	}
	panic("BUG: no colour " + string(c))
}

// A canvas is an image that shapes are drawn on.
type canvas struct{ image *image.RGBA }

func (c *canvas) shape(s *Shape) error {
	switch {
	case s.Text != "":
		return c.text(s)
	case s.Radius > 0:
		ring := circle(s.At, s.Radius)
		c.fill(s.Fill, ring)
		c.stroke(s.Stroke, append(ring, ring[0]), s.Width, false)
	default:
		c.fill(s.Fill, s.Points)
		path := s.Points
		if s.Closed {
			path = append(path[:len(path):len(path)], path[0])
		}
		c.stroke(s.Stroke, path, s.Width, s.Dashed)
	}
	return nil
}

// circle returns the corners of a polygon that looks round.
func circle(at Point, radius float64) []Point {
	const corners = 24
	list := make([]Point, corners)
	for i := range list {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		list[i] = Point{at.X + radius*cos, at.Y + radius*sin}
	}
	return list
}

// fill fills polygons that turn the same way or lie apart: it draws their union.
func (c *canvas) fill(colour Colour, polygons ...[]Point) {
	if colour == None {
		return
	}
	// A rasterizer costs as much as its size, so make it as small as possible.
	area := bounds(polygons).Intersect(c.image.Bounds())
	if area.Empty() {
		return
	}
	z := vector.NewRasterizer(area.Dx(), area.Dy())
	for _, points := range polygons {
		for i, p := range points {
			x, y := float32(p.X*pngScale-float64(area.Min.X)), float32(p.Y*pngScale-float64(area.Min.Y))
			if i == 0 {
				z.MoveTo(x, y)
			} else {
				z.LineTo(x, y)
			}
		}
		z.ClosePath()
	}
	z.Draw(c.image, area, image.NewUniform(lightColour(colour)), image.Point{})
}

// bounds returns the pixels that polygons may touch.
func bounds(polygons [][]Point) image.Rectangle {
	low, high := Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, points := range polygons {
		for _, p := range points {
			low = Point{min(low.X, p.X), min(low.Y, p.Y)}
			high = Point{max(high.X, p.X), max(high.Y, p.Y)}
		}
	}
	if !(low.X <= high.X && low.Y <= high.Y) {
		return image.Rectangle{}
	}
	return image.Rect(int(math.Floor(low.X*pngScale)), int(math.Floor(low.Y*pngScale)), int(math.Ceil(high.X*pngScale)), int(math.Ceil(high.Y*pngScale)))
}

// stroke draws a line of straight pieces with round joints.
func (c *canvas) stroke(colour Colour, path []Point, width float64, dashed bool) {
	if colour == None || len(path) < 2 {
		return
	}
	if dashed {
		for _, piece := range dashes(path) {
			c.stroke(colour, piece, width, false)
		}
		return
	}
	var polygons [][]Point
	for i := 1; i < len(path); i++ {
		a, b := path[i-1], path[i]
		length := math.Hypot(b.X-a.X, b.Y-a.Y)
		if length == 0 {
			continue
		}
		dx, dy := (b.X-a.X)/length*width/2, (b.Y-a.Y)/length*width/2
		polygons = append(polygons, []Point{{a.X + dy, a.Y - dx}, {b.X + dy, b.Y - dx}, {b.X - dy, b.Y + dx}, {a.X - dy, a.Y + dx}})
		if width > 1 {
			polygons = append(polygons, circle(b, width/2))
		}
	}
	c.fill(colour, polygons...)
}

// dashes cuts a path into the dashes that SVG would draw.
func dashes(path []Point) [][]Point {
	const on, off = 5.0, 4.0
	var list [][]Point
	piece, drawn, left := []Point{path[0]}, true, on
	for i := 1; i < len(path); i++ {
		a, b := path[i-1], path[i]
		for {
			length := math.Hypot(b.X-a.X, b.Y-a.Y)
			if length <= left {
				left -= length
				piece = append(piece, b)
				break
			}
			a = Point{a.X + (b.X-a.X)*left/length, a.Y + (b.Y-a.Y)*left/length}
			if drawn {
				list = append(list, append(piece, a))
			}
			piece, drawn, left = []Point{a}, !drawn, on
			if !drawn {
				left = off
			}
		}
	}
	if drawn {
		list = append(list, piece)
	}
	return list
}

// letterStyles are the sizes of letters as the style sheet has them.
var letterStyles = map[string]struct {
	size float64
	bold bool
}{"tick": {12, false}, "label": {13, false}, "note": {12, false}, "head": {15, true}, "title": {19, true}}

var fonts = sync.OnceValues(func() (fonts [2]*opentype.Font, err error) {
	if fonts[0], err = opentype.Parse(goregular.TTF); err != nil {
		return fonts, err
	}
	fonts[1], err = opentype.Parse(gobold.TTF)
	return fonts, err
})

func face(letter string) (font.Face, error) {
	both, err := fonts()
	if err != nil {
		return nil, err
	}
	style, f := letterStyles[letter], both[0]
	if style.bold {
		f = both[1]
	}
	return opentype.NewFace(f, &opentype.FaceOptions{Size: style.size * pngScale, DPI: 72, Hinting: font.HintingNone})
}

func (c *canvas) text(s *Shape) error {
	f, err := face(s.Letter)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it holds no resource
	width := font.MeasureString(f, s.Text)
	back := fixed.Int26_6(0)
	switch s.Anchor {
	case Middle:
		back = width / 2
	case End:
		back = width
	}
	source := image.NewUniform(lightColour(s.Fill))
	if !s.Upward {
		d := font.Drawer{Dst: c.image, Src: source, Face: f, Dot: fixed.Point26_6{X: fixedOf(s.At.X) - back, Y: fixedOf(s.At.Y)}}
		d.DrawString(s.Text)
		return nil
	}
	c.upward(s, f, source, width, back)
	return nil
}

// upward draws the text horizontally on its own canvas and rotates that.
func (c *canvas) upward(s *Shape, f font.Face, source image.Image, width, back fixed.Int26_6) {
	m := f.Metrics()
	mask := image.NewAlpha(image.Rect(0, 0, width.Ceil()+2, (m.Ascent+m.Descent).Ceil()+2))
	d := font.Drawer{Dst: mask, Src: image.Opaque, Face: f, Dot: fixed.Point26_6{Y: m.Ascent}}
	d.DrawString(s.Text)
	size := mask.Bounds()
	turned := image.NewAlpha(image.Rect(0, 0, size.Dy(), size.Dx()))
	for y := range size.Dy() {
		for x := range size.Dx() {
			turned.SetAlpha(y, size.Dx()-1-x, mask.AlphaAt(x, y))
		}
	}
	at := image.Pt(fixedOf(s.At.X).Round()-m.Ascent.Round(), (fixedOf(s.At.Y)+back).Round()-size.Dx())
	draw.DrawMask(c.image, turned.Bounds().Add(at), source, image.Point{}, turned, image.Point{}, draw.Over)
}

func fixedOf(v float64) fixed.Int26_6 { return fixed.Int26_6(math.Round(v * pngScale * 64)) }
