package page

import (
	"fmt"
	"math"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

const (
	// maxLines is how many levels one figure shows, maxSmall how many small
	// figures stand side by side.
	maxLines = 6
	maxSmall = 12
	// maxNines is as far as the spectrum goes: 99.999 %.
	maxNines = 5
)

// spectrum shows all percentiles; each additional nine has the same width.
func (r *run) spectrum() *chart.Chart {
	levels := r.few(maxLines)
	shortest, longest, most := time.Duration(0), time.Duration(0), int64(1)
	for _, l := range levels {
		h := l.Merged.Latency
		most = max(most, h.Count())
		longest = max(longest, h.Max())
		low := h.Min()
		if o, _ := r.otherClock(l.Merged); o != nil {
			low, longest = min(low, o.Min()), max(longest, o.Max())
		}
		if shortest == 0 || low < shortest {
			shortest = low
		}
	}
	u := unitFor(longest)
	c := &chart.Chart{
		Title: "Percentile spectrum",
		Desc:  "Latency over the share of requests that took no longer, with as much room for each further nine.",
		Width: wide, Height: figureHigh,
		X: chart.Axis{Label: "percentile (% of requests)", Scale: chart.Spectrum(lastQuantile(most))},
		Y: chart.Axis{Label: u.label("latency"), Scale: scaleFor(u, shortest, longest)},
	}
	other := ""
	for i, l := range levels {
		colour := rampAt(i, len(levels))
		c.Marks = append(c.Marks, spectrumLine(u, l.Merged.Latency, colour, false))
		c.Keys = append(c.Keys, chart.Key{Name: levelName(l.Load), Colour: colour, Line: true})
		if h, name := r.otherClock(l.Merged); h != nil {
			other = name
			c.Marks = append(c.Marks, spectrumLine(u, h, colour, true))
		}
	}
	if other != "" {
		c.Desc += " Dashed lines count " + other + "."
		c.Keys = append(c.Keys, chart.Key{Name: other, Colour: chart.Muted, Line: true, Dashed: true})
	}
	return c
}

// otherClock returns an open loop's latency by the clock that the plan does not
// use, and that clock's name; nil in a closed loop.
func (r *run) otherClock(w *result.Window) (*load.Histogram, string) {
	if r.Plan.LatencyClock == result.SendClock {
		return w.FromSchedule, "from when it was due"
	}
	return w.FromSend, "from when it was sent"
}

// rampAt returns the colour of the i-th of n ordered things.
func rampAt(i, n int) chart.Colour {
	if n < 2 {
		return chart.Blue
	}
	return chart.Ramp[i*(len(chart.Ramp)-1)/(n-1)]
}

// lastQuantile is the highest quantile that n requests can show.
func lastQuantile(n int64) float64 {
	return 1 - max(math.Pow(10, -maxNines), 1/float64(max(n, 10)))
}

func spectrumLine(u unit, h *load.Histogram, colour chart.Colour, sent bool) chart.Line {
	line := chart.Line{Colour: colour, Width: 1.8, Dashed: sent}
	last := lastQuantile(h.Count())
	const step = 0.05 // of a nine
	for n := 0.0; ; n += step {
		q := 1 - math.Pow(10, -n)
		if q >= last {
			line.Points = append(line.Points, chart.Point{X: last, Y: u.value(h.Quantile(last))})
			return line
		}
		line.Points = append(line.Points, chart.Point{X: q, Y: u.value(h.Quantile(q))})
	}
}

// histogramBars is how many bars a distribution has.
const histogramBars = 44

// histograms shows the distribution of latency, a figure for each level, all with
// the same axis of latency so that they can be compared.
func (r *run) histograms() []*chart.Chart {
	levels := r.few(maxSmall)
	low, high := time.Duration(math.MaxInt64), time.Duration(0)
	for _, l := range levels {
		low = min(low, l.Merged.Latency.Quantile(0.001))
		high = max(high, l.Merged.Latency.Quantile(0.999))
	}
	u := unitFor(high)
	b := bins{u: u, low: max(1, float64(low)*0.98), high: float64(high) * 1.02}
	b.log = b.high > 5*b.low
	var list []*chart.Chart
	for _, l := range levels {
		list = append(list, b.chart(l, len(levels) == 1))
	}
	return list
}

// bins cut the axis of latency.
type bins struct {
	u         unit
	low, high float64 // nanoseconds
	log       bool
}

func (b bins) edge(i int) float64 {
	f := float64(i) / histogramBars
	if b.log {
		return b.low * math.Pow(b.high/b.low, f)
	}
	return b.low + f*(b.high-b.low)
}

// counts sorts a histogram into the bins; values outside go into the first or
// the last.
func (b bins) counts(h *load.Histogram) [histogramBars]float64 {
	var counts [histogramBars]float64
	for bucket := range h.Buckets() {
		middle := (float64(bucket.From) + float64(bucket.To)) / 2
		f := (middle - b.low) / (b.high - b.low)
		if b.log {
			f = math.Log(max(middle, 1)/b.low) / math.Log(b.high/b.low)
		}
		i := min(max(int(f*histogramBars), 0), histogramBars-1)
		counts[i] += float64(bucket.Count)
	}
	return counts
}

func (b bins) chart(l *result.Level, alone bool) *chart.Chart {
	h := l.Merged.Latency
	counts := b.counts(h)
	most := 0.0
	for _, n := range counts {
		most = max(most, share(n, float64(h.Count())))
	}
	low, high := b.edge(0)/float64(b.u.of), b.edge(histogramBars)/float64(b.u.of)
	scale := chart.Linear(low, high)
	if b.log {
		scale = chart.Log(low, high)
	}
	p50, p99 := h.Quantile(0.5), h.Quantile(0.99)
	c := &chart.Chart{
		Title: levelName(l.Load),
		Desc:  fmt.Sprintf("Distribution of latency at %s: p50 %s, p99 %s, longest %s.", levelName(l.Load), span(p50), span(p99), span(h.Max())),
		Width: smallWide, Height: smallHigh,
		X: chart.Axis{Label: b.u.label("latency"), Scale: scale},
		Y: chart.Axis{Label: "requests (%)", Scale: chart.Linear(0, most)},
		Keys: []chart.Key{
			{Name: "p50 " + span(p50), Colour: chart.Green, Line: true},
			{Name: "p99 " + span(p99), Colour: chart.Orange, Line: true},
		},
	}
	if alone {
		c.Width, c.Height = wide, figureHigh
	}
	for i, n := range counts {
		from, to := b.edge(i)/float64(b.u.of), b.edge(i+1)/float64(b.u.of)
		c.Marks = append(c.Marks, chart.Bar{
			From: from, To: to, High: share(n, float64(h.Count())), Colour: chart.Blue, Gap: 0.6,
			Tip: fmt.Sprintf("%s to %s %s: %.0f requests", chart.Number(from), chart.Number(to), b.u.name, n),
		})
	}
	c.Marks = append(c.Marks,
		chart.Wall{X: b.u.value(p50), Colour: chart.Green},
		chart.Wall{X: min(b.u.value(p99), high), Colour: chart.Orange})
	return c
}
