package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

// A run is a result prepared for the figures.
type run struct {
	*result.Result
	levels []*result.Level // with answers, by rising load
	knee   *result.Level   // nil: there is none
}

func newRun(r *result.Result) *run {
	v := &run{Result: r}
	for i := range r.Levels {
		if l := &r.Levels[i]; l.Merged != nil && l.Merged.Requests > 0 {
			v.levels = append(v.levels, l)
		}
	}
	slices.SortStableFunc(v.levels, func(a, b *result.Level) int { return cmp.Compare(a.Load.Value, b.Load.Value) })
	v.knee = knee(v.levels)
	return v
}

// knee returns the level with the best ratio of throughput to latency: up to it
// more load brings more throughput, beyond it mostly more waiting. It is nil
// when there are too few levels or the last one is still the best.
func knee(levels []*result.Level) *result.Level {
	if len(levels) < 3 {
		return nil
	}
	best, at := 0.0, 0
	for i, l := range levels {
		if power := l.Merged.Throughput() / max(1, float64(l.Merged.Latency.Mean())); power > best {
			best, at = power, i
		}
	}
	if at == len(levels)-1 {
		return nil
	}
	return levels[at]
}

// few returns at most n of the levels: the first, the last and some between.
func (r *run) few(n int) []*result.Level {
	if len(r.levels) <= n {
		return r.levels
	}
	list := make([]*result.Level, n)
	for i := range list {
		list[i] = r.levels[i*(len(r.levels)-1)/(n-1)]
	}
	return list
}

// names returns the names of levels on an axis.
func names(levels []*result.Level) []string {
	list := make([]string, len(levels))
	for i, l := range levels {
		list[i] = chart.Number(l.Load.Value)
	}
	return list
}

// axis returns the label of the axis of levels, with its unit.
func (r *run) axis() string {
	if len(r.levels) > 0 && r.levels[0].Load.Open() {
		return "request rate (requests/s)"
	}
	return "concurrency (requests under way)"
}

func levelName(l result.Load) string {
	if l.Open() {
		return chart.Number(l.Value) + " requests/s"
	}
	return "concurrency " + chart.Number(l.Value)
}

// A unit is one of time.
type unit struct {
	name string
	of   time.Duration
}

// unitFor returns the unit for times up to most.
func unitFor(most time.Duration) unit {
	switch {
	case most >= 5*time.Second:
		return unit{"s", time.Second}
	case most >= time.Millisecond:
		return unit{"ms", time.Millisecond}
	default:
		return unit{"µs", time.Microsecond}
	}
}

func (u unit) value(d time.Duration) float64 { return float64(d) / float64(u.of) }

// label returns a label for an axis of such times.
func (u unit) label(what string) string { return fmt.Sprintf("%s (%s)", what, u.name) }

// span writes a time for people.
func span(d time.Duration) string {
	u := unitFor(d)
	return chart.Number(u.value(d)) + " " + u.name
}

// scaleFor returns a scale for times from the shortest to the longest: from
// zero on, or logarithmic if most of them would otherwise be indistinguishable
// near zero.
func scaleFor(u unit, shortest, longest time.Duration) chart.Scale {
	if shortest > 0 && longest > 25*shortest {
		return chart.Log(u.value(shortest), u.value(longest))
	}
	return chart.Linear(0, u.value(longest))
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}
