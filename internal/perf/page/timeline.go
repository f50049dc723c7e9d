package page

import (
	"fmt"
	"time"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

// maxPoints bounds the points of a line over time.
const maxPoints = 400

// A moment is one tick of a timeline, or several joined.
type moment struct {
	at               time.Duration // its end, since the run began
	length           time.Duration
	requests, failed int64
	p50, p99, max    time.Duration
}

// moments returns a level's ticks, joined so that there are at most limit of
// them. The median is the mean of the ticks' medians, weighted by requests. Of
// the other values the worst counts: joining must not hide a stall.
func (r *run) moments(l *result.Level, limit int) []moment {
	if len(l.Timeline) == 0 || len(l.Windows) == 0 {
		return nil
	}
	begin := l.Windows[0].Start.Sub(r.Started)
	whole := l.Timeline[len(l.Timeline)-1].At
	// The last tick of a window is short: alone it would be a spike.
	least := max(whole/time.Duration(limit), 90*time.Millisecond)
	var list []moment
	var m moment
	before := time.Duration(0)
	for i, t := range l.Timeline {
		if n := m.requests + t.Requests; n > 0 {
			m.p50 = time.Duration((float64(m.p50)*float64(m.requests) + float64(t.P50)*float64(t.Requests)) / float64(n))
		}
		m.requests += t.Requests
		m.failed += t.Failed
		m.p99, m.max = max(m.p99, t.P99), max(m.max, t.Max)
		m.at, m.length = begin+t.At, t.At-before
		if m.length >= least || i == len(l.Timeline)-1 && m.length >= least/2 {
			list = append(list, m)
			m, before = moment{}, t.At
		}
	}
	return list
}

// times are the moments of all levels in the order of measurement.
type times struct {
	levels [][]moment
	names  []string
	starts []float64 // of the levels, in seconds
	end    float64
}

func (r *run) times() times {
	var t times
	measured := make([]*result.Level, 0, len(r.Levels))
	for i := range r.Levels {
		if len(r.Levels[i].Timeline) > 0 {
			measured = append(measured, &r.Levels[i])
		}
	}
	for _, l := range measured {
		list := r.moments(l, max(10, maxPoints/len(measured)))
		if len(list) == 0 {
			continue
		}
		t.levels = append(t.levels, list)
		t.names = append(t.names, chart.Number(l.Load.Value))
		t.starts = append(t.starts, (list[0].at - list[0].length).Seconds())
		t.end = max(t.end, list[len(list)-1].at.Seconds())
	}
	return t
}

// backdrop shades every other level and names them.
func (t times) backdrop(top float64) []chart.Mark {
	var marks []chart.Mark
	if len(t.levels) < 2 {
		return nil
	}
	for i, list := range t.levels {
		from, to := t.starts[i], list[len(list)-1].at.Seconds()
		if i%2 == 0 {
			marks = append(marks, chart.Stretch{From: from, To: to})
		}
		if (to-from)/t.end > 0.03 {
			marks = append(marks, chart.Note{At: chart.Point{X: (from + to) / 2, Y: top}, DY: -4, Anchor: chart.Middle, Text: t.names[i], Colour: chart.Muted, Spare: i%2 == 1 && len(t.levels) > 6})
		}
	}
	return marks
}

func (t times) axis() chart.Axis {
	return chart.Axis{Label: "time since the start (s)", Scale: chart.UpTo(t.end)}
}

// latencyOverTime shows p50, p99 and the worst of each moment.
func (r *run) latencyOverTime() *chart.Chart {
	t := r.times()
	shortest, longest := time.Duration(0), time.Duration(0)
	for _, list := range t.levels {
		for _, m := range list {
			if m.requests > 0 && (shortest == 0 || m.p50 < shortest) {
				shortest = m.p50
			}
			longest = max(longest, m.max)
		}
	}
	if longest == 0 {
		return nil
	}
	u := unitFor(longest)
	y := scaleFor(u, shortest, longest)
	c := &chart.Chart{
		Title: "Latency over time",
		Desc:  "The median, p99 and longest latency of each moment of the run, level after level.",
		Width: wide, Height: figureHigh, X: t.axis(), Y: chart.Axis{Label: u.label("latency"), Scale: y},
		Marks: t.backdrop(topOf(y)),
	}
	for _, part := range []struct {
		name   string
		colour chart.Colour
		width  float64
		of     func(m moment) time.Duration
	}{
		{"longest", chart.Grey, 1, func(m moment) time.Duration { return m.max }},
		{"p99", chart.Orange, 1.4, func(m moment) time.Duration { return m.p99 }},
		{"p50", chart.Blue, 1.8, func(m moment) time.Duration { return m.p50 }},
	} {
		for _, list := range t.levels {
			line := chart.Line{Colour: part.colour, Width: part.width, Dots: len(list) == 1}
			for _, m := range list {
				if m.requests > 0 {
					line.Points = append(line.Points, chart.Point{X: m.at.Seconds(), Y: u.value(part.of(m))})
				}
			}
			c.Marks = append(c.Marks, line)
		}
		c.Keys = append([]chart.Key{{Name: part.name, Colour: part.colour, Line: true}}, c.Keys...)
	}
	return c
}

// topOf returns the value at the upper end of a scale.
func topOf(s chart.Scale) float64 {
	ticks := s.Ticks()
	return ticks[len(ticks)-1].Value
}

// throughputOverTime shows the answers of each moment, and the failures.
func (r *run) throughputOverTime() *chart.Chart {
	t := r.times()
	most, failed := 0.0, int64(0)
	for _, list := range t.levels {
		for _, m := range list {
			most = max(most, m.rate(m.requests))
			failed += m.failed
		}
	}
	if len(t.levels) == 0 {
		return nil
	}
	y := chart.Linear(0, most)
	c := &chart.Chart{
		Title: "Throughput over time",
		Desc:  "Requests answered each second in each moment of the run, level after level.",
		Width: wide, Height: figureHigh, X: t.axis(), Y: chart.Axis{Label: "answers (requests/s)", Scale: y},
		Marks: t.backdrop(topOf(y)),
		Keys:  []chart.Key{{Name: "answered", Colour: chart.Blue, Line: true}},
	}
	for _, list := range t.levels {
		line := chart.Line{Colour: chart.Blue, Width: 1.6, Dots: len(list) == 1}
		bad := chart.Line{Colour: chart.Red, Width: 1.6}
		for _, m := range list {
			x := m.at.Seconds()
			line.Points = append(line.Points, chart.Point{X: x, Y: m.rate(m.requests)})
			bad.Points = append(bad.Points, chart.Point{X: x, Y: m.rate(m.failed)})
		}
		c.Marks = append(c.Marks, line)
		if failed > 0 {
			c.Marks = append(c.Marks, bad)
		}
	}
	if failed > 0 {
		c.Desc += fmt.Sprintf(" %d requests failed.", failed)
		c.Keys = append(c.Keys, chart.Key{Name: "failed", Colour: chart.Red, Line: true})
	}
	return c
}

func (m moment) rate(n int64) float64 { return float64(n) / m.length.Seconds() }
