package page

import (
	"fmt"
	"math"
	"slices"
	"time"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

// The largest size of a figure on its own row, and of figures side by side.
const (
	wide, figureHigh     = 560, 320
	smallWide, smallHigh = 290, 200
)

// maxBars is how many levels have a bar or windows in a figure; maxDots how
// many have a point. More would be unreadable, and a large file.
const (
	maxBars = 40
	maxDots = 100
)

var quantiles = []struct {
	q      float64
	name   string
	colour chart.Colour
}{
	{0.5, "p50", chart.Blue},
	{0.9, "p90", chart.Purple},
	{0.99, "p99", chart.Orange},
}

// curve shows throughput against latency.
func (r *run) curve() *chart.Chart {
	levels := r.few(maxDots)
	var least, longest time.Duration
	for _, l := range levels {
		if p50 := l.Merged.Latency.Quantile(0.5); least == 0 || p50 < least {
			least = p50
		}
		longest = max(longest, l.Merged.Latency.Quantile(0.99))
	}
	u := unitFor(longest)
	c := &chart.Chart{
		Title: "Throughput and latency",
		Desc:  "Latency over throughput, a point for each level, with p50, p90 and p99.",
		Width: wide, Height: figureHigh,
		X: chart.Axis{Label: "throughput (infer/s)", Scale: throughputScale(levels)},
		Y: chart.Axis{Label: u.label("latency"), Scale: scaleFor(u, least, longest)},
	}
	if r.knee != nil {
		c.Desc += " The knee is at " + levelName(r.knee.Load) + "."
		c.Marks = append(c.Marks, chart.Wall{X: r.knee.Merged.Throughput(), Colour: chart.Green, Dashed: true})
	}
	for _, q := range quantiles {
		line := chart.Line{Colour: q.colour, Dots: true}
		for _, l := range levels {
			d := l.Merged.Latency.Quantile(q.q)
			line.Points = append(line.Points, chart.Point{X: l.Merged.Throughput(), Y: u.value(d)})
			line.Tips = append(line.Tips, fmt.Sprintf("%s: %s infer/s, %s %s", levelName(l.Load), chart.Number(l.Merged.Throughput()), q.name, span(d)))
		}
		for _, l := range levels {
			c.Marks = append(c.Marks, whiskers(u, l, q.name, q.colour)...)
		}
		c.Marks = append(c.Marks, line)
		c.Keys = append(c.Keys, chart.Key{Name: q.name, Colour: q.colour, Line: true})
	}
	c.Marks = append(c.Marks, curveNotes(levels, u, c.X.Scale, c.Y.Scale)...)
	if r.knee != nil {
		c.Keys = append(c.Keys, chart.Key{Name: "knee, at " + levelName(r.knee.Load), Colour: chart.Green, Line: true, Dashed: true})
	}
	return c
}

// throughputScale has room for the levels with their intervals. It begins at zero unless that would leave much of it empty.
func throughputScale(levels []*result.Level) chart.Scale {
	low, high := math.Inf(1), 0.0
	for _, l := range levels {
		least, most := l.Merged.Throughput(), l.Merged.Throughput()
		if f := figureOf(l, result.FigureThroughput); f != nil {
			least, most = min(least, f.Low), max(most, f.High)
		}
		low, high = min(low, least), max(high, most)
	}
	if low < high/3 {
		return chart.UpTo(high * 1.06)
	}
	room := max(high-low, high/100) * 0.06
	return chart.Linear(low-room, high+room)
}

// whiskers shows the intervals of a level's percentile and throughput.
func whiskers(u unit, l *result.Level, name string, colour chart.Colour) []chart.Mark {
	var marks []chart.Mark
	latency, throughput := figureOf(l, name), figureOf(l, result.FigureThroughput)
	if latency == nil {
		return nil
	}
	at := chart.Point{X: l.Merged.Throughput(), Y: u.value(time.Duration(latency.Value))}
	marks = append(marks, chart.Whisker{At: at, Low: u.value(time.Duration(latency.Low)), High: u.value(time.Duration(latency.High)), Colour: colour})
	if throughput != nil {
		marks = append(marks, chart.Whisker{At: at, Low: throughput.Low, High: throughput.High, Level: true, Colour: colour})
	}
	return marks
}

// figureOf returns a level's figure that has an interval; nil when it has none.
func figureOf(l *result.Level, name string) *result.Figure {
	for i := range l.Figures {
		if f := &l.Figures[i]; f.Name == name && f.Known() {
			return f
		}
	}
	return nil
}

// curveNotes labels the points of the topmost line where there is room.
func curveNotes(levels []*result.Level, u unit, x, y chart.Scale) []chart.Mark {
	var marks []chart.Mark
	var taken []chart.Point // where names are, from 0 to 1
	for _, l := range levels {
		at := chart.Point{X: l.Merged.Throughput(), Y: u.value(l.Merged.Latency.Quantile(0.99))}
		place := chart.Point{X: x.At(at.X), Y: y.At(at.Y)}
		if slices.ContainsFunc(taken, func(p chart.Point) bool { return abs(p.X-place.X) < 0.055 && abs(p.Y-place.Y) < 0.06 }) {
			continue
		}
		taken = append(taken, place)
		note := chart.Note{At: at, DX: -7, DY: -6, Anchor: chart.End, Text: chart.Number(l.Load.Value), Colour: chart.Muted}
		if place.X < 0.1 {
			note.DX, note.Anchor = 7, chart.Start
		}
		marks = append(marks, note)
	}
	return marks
}

func abs(v float64) float64 { return max(v, -v) }

// A part is a part of a request's time.
type part struct {
	name   string
	colour chart.Colour
	of     func(w *result.Window) time.Duration
}

var parts = []part{
	{"queue", chart.Orange, func(w *result.Window) time.Duration { return w.Server.Queue.Mean() }},
	{"compute input", chart.Sky, func(w *result.Window) time.Duration { return w.Server.Input.Mean() }},
	{"compute infer", chart.Blue, func(w *result.Window) time.Duration { return w.Server.Infer.Mean() }},
	{"compute output", chart.Green, func(w *result.Window) time.Duration { return w.Server.Output.Mean() }},
	{"network and the outside", chart.Grey, outside},
}

// outside is the client's latency less the time that the server accounts for.
func outside(w *result.Window) time.Duration {
	seen := w.Latency.Mean()
	if w.FromSend != nil {
		seen = w.FromSend.Mean() // the server does not know of the wait before sending
	}
	s := w.Server
	return max(0, seen-s.Queue.Mean()-s.Input.Mean()-s.Infer.Mean()-s.Output.Mean())
}

// breakdown shows where a mean request's time goes.
func (r *run) breakdown() *chart.Chart {
	levels := r.few(maxBars)
	longest, most, known := time.Duration(0), 0.0, false
	for _, l := range levels {
		most = max(most, l.Merged.Throughput())
		if l.Merged.Server == nil {
			continue
		}
		known = true
		total := time.Duration(0)
		for _, p := range parts {
			total += p.of(l.Merged)
		}
		longest = max(longest, total)
	}
	if !known {
		return nil
	}
	u := unitFor(longest)
	c := &chart.Chart{
		Title: "Where the time goes",
		Desc:  "For each level the mean time of a request, stacked: queue, compute input, compute infer, compute output by the server's own account, and the rest. A line shows the throughput.",
		Width: wide, Height: figureHigh,
		X:  chart.Axis{Label: r.axis(), Scale: chart.Bands(names(levels))},
		Y:  chart.Axis{Label: u.label("mean time of a request"), Scale: chart.Linear(0, u.value(longest))},
		Y2: &chart.Axis{Label: "throughput (infer/s)", Scale: chart.Linear(0, most)},
	}
	throughput := chart.Line{Colour: chart.Ink, Dots: true, Second: true}
	for i, l := range levels {
		x := float64(i)
		if l.Merged.Server != nil {
			c.Marks = append(c.Marks, stack(u, x, l)...)
		}
		throughput.Points = append(throughput.Points, chart.Point{X: x, Y: l.Merged.Throughput()})
		throughput.Tips = append(throughput.Tips, fmt.Sprintf("%s: %s infer/s", levelName(l.Load), chart.Number(l.Merged.Throughput())))
	}
	c.Marks = append(c.Marks, throughput)
	for _, p := range parts {
		c.Keys = append(c.Keys, chart.Key{Name: p.name, Colour: p.colour})
	}
	c.Keys = append(c.Keys, chart.Key{Name: "throughput, at the right", Colour: chart.Ink, Line: true})
	return c
}

func stack(u unit, x float64, l *result.Level) []chart.Mark {
	var marks []chart.Mark
	low := 0.0
	half := 0.32
	for _, p := range parts {
		d := p.of(l.Merged)
		marks = append(marks, chart.Bar{
			From: x - half, To: x + half, Low: low, High: low + u.value(d), Colour: p.colour,
			Tip: fmt.Sprintf("%s: %s %s", levelName(l.Load), p.name, span(d)),
		})
		low += u.value(d)
	}
	return marks
}
