package page

import (
	"fmt"
	"slices"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

const (
	// maxSizes is how many batch sizes are shown separately; more are grouped.
	maxSizes = 16
	// fewSizes is the least number of groups.
	fewSizes = 4
)

// A sizeGroup is batch sizes that are shown as one.
type sizeGroup struct {
	name     string
	from, to uint64
}

// batches shows how large the batches were that the server formed, a figure for
// each level.
func (r *run) batches() []*chart.Chart {
	var levels []*result.Level
	var sizes []uint64
	for _, l := range r.few(maxSmall) {
		if s := l.Merged.Server; s != nil && len(s.Batches) > 0 {
			levels = append(levels, l)
			for _, b := range s.Batches {
				sizes = append(sizes, b.Size)
			}
		}
	}
	slices.Sort(sizes)
	groups := groupSizes(slices.Compact(sizes))
	var list []*chart.Chart
	for _, l := range levels {
		list = append(list, batchChart(l, groups, len(levels) == 1))
	}
	return list
}

// groupSizes puts sizes together by powers of two when there are many.
func groupSizes(sizes []uint64) []sizeGroup {
	var groups []sizeGroup
	if len(sizes) == 0 {
		return nil
	}
	if last := sizes[len(sizes)-1]; last <= maxSizes {
		sizes = sizes[:0:0]
		for s := uint64(1); s <= max(last, fewSizes); s++ {
			sizes = append(sizes, s) // the gaps between sizes say something too
		}
	}
	if len(sizes) <= maxSizes {
		for _, s := range sizes {
			groups = append(groups, sizeGroup{fmt.Sprint(s), s, s})
		}
		return groups
	}
	from := uint64(1)
	for to := uint64(1); from <= sizes[len(sizes)-1] && to > 0; to *= 2 {
		name := fmt.Sprintf("%d-%d", from, to)
		if from == to {
			name = fmt.Sprint(to)
		}
		groups = append(groups, sizeGroup{name, from, to})
		from = to + 1
	}
	return groups
}

func batchChart(l *result.Level, groups []sizeGroup, alone bool) *chart.Chart {
	s := l.Merged.Server
	counts := make([]float64, len(groups))
	names := make([]string, len(groups))
	total, most := 0.0, 0.0
	for i, g := range groups {
		names[i] = g.name
		for _, b := range s.Batches {
			if b.Size >= g.from && b.Size <= g.to {
				counts[i] += float64(b.Infer.Count)
			}
		}
		total += counts[i]
	}
	c := &chart.Chart{
		Title: levelName(l.Load),
		Desc:  fmt.Sprintf("Sizes of the batches that the server ran at %s: %.2f rows in the mean of %d runs.", levelName(l.Load), s.MeanBatch(), s.Executions),
		Width: smallWide, Height: smallHigh,
		X:    chart.Axis{Label: "batch size (rows)", Scale: chart.Bands(names)},
		Keys: []chart.Key{{Name: "mean " + rows(s.MeanBatch()), Colour: chart.Purple}},
	}
	if alone {
		c.Width, c.Height = wide, figureHigh
	}
	for i, n := range counts {
		v := share(n, total)
		most = max(most, v)
		c.Marks = append(c.Marks, chart.Bar{
			From: float64(i) - 0.4, To: float64(i) + 0.4, High: v, Colour: chart.Purple,
			Tip: fmt.Sprintf("batches of %s: %.0f, %.1f%%", groups[i].name, n, v),
		})
	}
	c.Y = chart.Axis{Label: "runs of the model (%)", Scale: chart.Linear(0, max(1, most))}
	return c
}
