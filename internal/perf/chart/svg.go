package chart

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// SVG returns the drawing as an SVG element without size, for a page that has
// the style sheet of CSS. The id must be unique in the page.
func (d *Drawing) SVG(id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %s %s" role="img" aria-labelledby="%s-t %[3]s-d">`, short(d.Width), short(d.Height), id)
	fmt.Fprintf(&b, `<title id="%s-t">%s</title><desc id="%[1]s-d">%[3]s</desc>`, id, html.EscapeString(d.Title), html.EscapeString(d.Desc))
	d.write(&b)
	b.WriteString("</svg>")
	return b.String()
}

// File returns the drawing as a complete SVG file, which follows the light or
// dark scheme of its reader.
func (d *Drawing) File() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s" role="img" aria-labelledby="t d">`+"\n", short(d.Width), short(d.Height))
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n", html.EscapeString(d.Title), html.EscapeString(d.Desc))
	fmt.Fprintf(&b, "<style>%s</style>\n", html.EscapeString(CSS("svg")))
	fmt.Fprintf(&b, `<rect width="%s" height="%s" class="f-paper"/>`+"\n", short(d.Width), short(d.Height))
	d.write(&b)
	b.WriteString("\n</svg>\n")
	return b.String()
}

func (d *Drawing) write(b *strings.Builder) {
	for i := range d.Shapes {
		d.Shapes[i].write(b)
	}
}

func (s *Shape) write(b *strings.Builder) {
	name := "path"
	switch {
	case s.Text != "":
		name = "text"
		fmt.Fprintf(b, `<text%s text-anchor="%s"`, s.place(), s.Anchor)
	case s.Radius > 0:
		name = "circle"
		fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="%s"`, short(s.At.X), short(s.At.Y), short(s.Radius))
	default:
		fmt.Fprintf(b, `<path d="%s"`, s.path())
	}
	fmt.Fprintf(b, ` class="%s"`, s.classes())
	if s.Fill == None {
		b.WriteString(` fill="none"`)
	}
	if s.Stroke != None && s.Width != 1 {
		fmt.Fprintf(b, ` stroke-width="%s"`, short(s.Width))
	}
	if s.Dashed {
		b.WriteString(` stroke-dasharray="5 4"`)
	}
	switch {
	case s.Text != "":
		fmt.Fprintf(b, ">%s</text>", html.EscapeString(s.Text))
	case s.Tip != "":
		fmt.Fprintf(b, "><title>%s</title></%s>", html.EscapeString(s.Tip), name)
	default:
		b.WriteString("/>")
	}
}

func (s *Shape) place() string {
	x, y := short(s.At.X), short(s.At.Y)
	if s.Upward {
		return fmt.Sprintf(` transform="translate(%s %s)rotate(-90)"`, x, y)
	}
	return fmt.Sprintf(` x="%s" y="%s"`, x, y)
}

func (s *Shape) classes() string {
	var list []string
	if s.Letter != "" {
		list = append(list, s.Letter)
	}
	if s.Stroke != None {
		list = append(list, "s-"+string(s.Stroke))
	}
	if s.Fill != None {
		list = append(list, "f-"+string(s.Fill))
	}
	if s.Spare {
		list = append(list, "spare")
	}
	return strings.Join(list, " ")
}

// path writes the points as relative moves, which are short.
func (s *Shape) path() string {
	var b strings.Builder
	x, y := 0, 0 // in tenths, so that rounding does not add up
	for i, p := range s.Points {
		nx, ny := tenths(p.X), tenths(p.Y)
		switch {
		case i == 0:
			b.WriteString("M" + tenth(nx) + " " + tenth(ny))
		case ny == y:
			b.WriteString("h" + tenth(nx-x))
		case nx == x:
			b.WriteString("v" + tenth(ny-y))
		default:
			b.WriteString("l" + tenth(nx-x) + " " + tenth(ny-y))
		}
		x, y = nx, ny
	}
	if s.Closed {
		b.WriteString("z")
	}
	return b.String()
}

func tenths(v float64) int { return int(v*10 + 0.5*sign(v)) }

func sign(v float64) float64 {
	if v < 0 {
		return -1
	}
	return 1
}

func tenth(n int) string { return strconv.FormatFloat(float64(n)/10, 'f', -1, 64) }

func short(v float64) string { return tenth(tenths(v)) }
