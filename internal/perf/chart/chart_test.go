package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"
)

func sample() *Chart {
	return &Chart{
		Title: `Latency of "a<b" & c`, Desc: "A line and two bars.", Width: 400, Height: 300,
		X:  Axis{"batch (rows)", Bands([]string{"1", "2"})},
		Y:  Axis{"latency (ms)", Linear(0, 10)},
		Y2: &Axis{"throughput (infer/s)", Linear(0, 1000)},
		Marks: []Mark{
			Stretch{From: -0.5, To: 0.5},
			Bar{From: -0.4, To: 0.4, High: 5, Colour: Blue, Tip: "five <ms>"},
			Bar{From: 0.6, To: 1.4, High: 8, Colour: Orange},
			Line{Points: []Point{{0, 100}, {1, 900}}, Colour: Ink, Second: true, Dots: true, Dashed: true, Tips: []string{"first"}},
			Ring{At: Point{1, 2}, Colour: Green, Radius: 4},
			Wall{X: 1, Colour: Red, Dashed: true},
			Whisker{At: Point{0, 5}, Low: 4, High: 60, Colour: Ink},
			Whisker{At: Point{0, 5}, Low: -0.2, High: 0.2, Level: true, Colour: Ink},
			Note{At: Point{0, 9}, Anchor: Start, Text: "here", Colour: Muted},
		},
		Keys: []Key{{Name: "bars", Colour: Blue}, {Name: "line", Colour: Ink, Line: true, Dashed: true}},
	}
}

// parse fails when text is not well-formed XML.
func parse(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
}

func TestSVGHasUnitsTitlesAndEscapedTexts(t *testing.T) {
	text := sample().Draw().SVG("x")
	parse(t, text)
	for _, want := range []string{
		`>batch (rows)</text>`, `>latency (ms)</text>`, `>throughput (infer/s)</text>`,
		`<title id="x-t">Latency of &#34;a&lt;b&#34; &amp; c</title>`, `<desc id="x-d">A line and two bars.</desc>`,
		`role="img" aria-labelledby="x-t x-d"`, `<title>five &lt;ms&gt;</title>`, `<title>first</title>`, `>here</text>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
}

func TestBarsEndWhereTheirValuesAre(t *testing.T) {
	c := sample()
	d := c.Draw()
	for _, s := range d.Shapes {
		if s.Fill != Blue || s.Text != "" {
			continue
		}
		top, bottom := s.Points[0].Y, s.Points[2].Y
		if field := c.Height - roomTop - roomBottom; bottom-top != field/2 || bottom != c.Height-roomBottom {
			t.Errorf("the bar of 5 out of 10 reaches from %v to %v, want half of %v from %v on", bottom, top, field, c.Height-roomBottom)
		}
		return
	}
	t.Error("got no blue bar")
}

func TestWhiskersStayInTheField(t *testing.T) {
	for _, s := range sample().Draw().Shapes {
		for _, p := range s.Points {
			if p.Y < roomTop-0.01 || p.X < 0 {
				t.Errorf("a shape of %s reaches %v, which is outside", s.Stroke, p)
			}
		}
	}
}

func TestFileStandsAloneInBothSchemes(t *testing.T) {
	text := Sheet("Title", "subtitle", 2, sample(), sample(), sample()).File()
	parse(t, text)
	for _, want := range []string{"prefers-color-scheme:dark", `class="f-paper"`, ">Title</text>", ">subtitle</text>", ">bars</text>", "--blue:"} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q", want)
		}
	}
	if n := strings.Count(text, ">latency (ms)</text>"); n != 3 {
		t.Errorf("got %d charts, want 3", n)
	}
}

func TestPNGShowsWhatTheSVGDoes(t *testing.T) {
	c := sample()
	var b bytes.Buffer
	if err := c.Draw().PNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := img.Bounds().Dx(); got != pngScale*400 {
		t.Fatalf("got %d pixels across, want %d", got, pngScale*400)
	}
	count := make(map[color.RGBA]int)
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			count[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}]++
		}
	}
	for _, want := range []Colour{Blue, Orange, Ink, Green, Red, Muted, Shade, Paper} {
		if count[lightColour(want)] == 0 {
			t.Errorf("got no pixel of %s", want)
		}
	}
	// Two bars of the same width, of 5 and of 8.
	if blue, orange := count[lightColour(Blue)], count[lightColour(Orange)]; blue >= orange || blue < orange/2 {
		t.Errorf("got %d blue and %d orange pixels, want about 5 to 8", blue, orange)
	}
}

func TestNamesOfTicksDoNotOverlap(t *testing.T) {
	var many []string
	for range 60 {
		many = append(many, "1000")
	}
	c := &Chart{Width: 500, Height: 200, X: Axis{"x", Bands(many)}, Y: Axis{"y", Linear(0, 1)}}
	last := -1e9
	shown := 0
	for _, s := range c.Draw().Shapes {
		if s.Text != "1000" {
			continue
		}
		shown++
		if s.At.X-last < 4*letterWidth {
			t.Fatalf("two names are %v apart, want at least %v", s.At.X-last, 4*letterWidth)
		}
		last = s.At.X
	}
	if shown < 5 {
		t.Errorf("got %d names, want some", shown)
	}
}
