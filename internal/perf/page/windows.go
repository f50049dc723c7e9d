package page

import (
	"fmt"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

// windows shows how far the windows of each level are from the level's result.
func (r *run) windows() *chart.Chart {
	var marks []chart.Mark
	var names []string
	levels := r.few(maxBars)
	furthest := 100 * r.Plan.Stability
	for i, l := range levels {
		first := len(names)
		for j := range l.Windows {
			w := &l.Windows[j]
			counts := l.Counts(j)
			x := float64(len(names))
			names = append(names, r.windowName(l, j))
			for _, d := range []struct {
				colour chart.Colour
				name   string
				by     float64
			}{
				{chart.Blue, "throughput", w.Throughput()/l.Merged.Throughput() - 1},
				{chart.Orange, r.judgedName(), float64(r.Plan.Judged(w))/max(1, float64(r.Plan.Judged(l.Merged))) - 1},
			} {
				by := max(-farthest, min(farthest, 100*d.by))
				furthest = max(furthest, abs(by))
				marks = append(marks, chart.Ring{
					At: chart.Point{X: x, Y: by}, Colour: d.colour, Radius: 3.6, Filled: counts,
					Tip: fmt.Sprintf("%s, window %d: %s %+.1f%%", levelName(l.Load), j+1, d.name, 100*d.by),
				})
			}
		}
		if i%2 == 0 && len(levels) > 1 {
			marks = append(marks, chart.Stretch{From: float64(first) - 0.5, To: float64(len(names)) - 0.5})
		}
	}
	x := r.axis() + ", its windows in turn"
	if len(levels) == 1 {
		x = "window (number)"
	}
	return &chart.Chart{
		Title: "Stability of the windows",
		Desc:  fmt.Sprintf("How far throughput and latency of each window are from the level's figure. Those that count may differ by %s %%.", chart.Number(100*r.Plan.Stability)),
		Width: wide, Height: figureHigh,
		X:     chart.Axis{Label: x, Scale: chart.Bands(names)},
		Y:     chart.Axis{Label: "difference from the level (%)", Scale: chart.Linear(-furthest, furthest)},
		Marks: marks,
		Keys: []chart.Key{
			{Name: "throughput", Colour: chart.Blue},
			{Name: r.judgedName(), Colour: chart.Orange},
		},
	}
}

// farthest is the largest deviation shown, in percent.
const farthest = 200

// windowName names a window: those of a single level by number, else the middle
// one by its level.
func (r *run) windowName(l *result.Level, i int) string {
	if len(r.levels) == 1 {
		return fmt.Sprint(i + 1)
	}
	if i == len(l.Windows)/2 {
		return chart.Number(l.Load.Value)
	}
	return ""
}

func (r *run) judgedName() string {
	if p := r.Plan.Percentile; p > 0 {
		return fmt.Sprintf("p%d latency", p)
	}
	return "mean latency"
}
