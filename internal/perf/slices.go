package perf

import (
	"slices"
	"time"

	"shoal/internal/load"
)

// A slice is what was seen between two looks at the workers, a tenth of a second
// or so. Windows keep theirs so that intervals know how much a figure moves from
// one moment to the next.
type slice struct {
	length   time.Duration
	requests int64
	rows     int64
	sum      float64 // of the latencies, in nanoseconds
	latency  []bin   // rising
}

// A bin is a number of latencies of about the same length. It is small, since there
// are many: a float tells the buckets of a histogram apart.
type bin struct {
	at    float32 // nanoseconds
	count uint32
}

// maxSlices bounds the slices of a window, and with them its memory; neighbours are
// joined when a long window has more. Half as many are enough for an interval.
const maxSlices = 128

// cut adds a slice to the window.
func (w *Window) cut(length time.Duration, requests, rows int64, latency *load.Histogram) {
	if length <= 0 && requests == 0 {
		return
	}
	s := slice{length: max(length, 0), requests: requests, rows: rows, sum: float64(latency.Mean()) * float64(latency.Count())}
	for b := range latency.Buckets() {
		s.latency = append(s.latency, bin{float32(b.From), uint32(b.Count)})
	}
	s.latency = slices.Clone(s.latency) // without the room to grow
	if len(w.slices) >= maxSlices {
		w.slices = halved(w.slices)
	}
	w.slices = append(w.slices, s)
}

// forgetSlices lets go of what only the intervals of a level need: a long sweep
// would keep it for every window of every level.
func (l *Level) forgetSlices() {
	for i := range l.Windows {
		l.Windows[i].slices = nil
	}
	if l.Merged != nil {
		l.Merged.slices = nil
	}
}

// halved joins each slice with its neighbour.
func halved(list []slice) []slice {
	joined := list[:0]
	for i := 0; i+1 < len(list); i += 2 {
		joined = append(joined, join(&list[i], &list[i+1]))
	}
	if len(list)%2 == 1 {
		joined = append(joined, list[len(list)-1])
	}
	clear(list[len(joined):]) // or what was joined would stay in memory
	return joined
}

func join(a, b *slice) slice {
	s := slice{length: a.length + b.length, requests: a.requests + b.requests, rows: a.rows + b.rows, sum: a.sum + b.sum}
	s.latency = make([]bin, 0, len(a.latency)+len(b.latency))
	i, j := 0, 0
	for i < len(a.latency) || j < len(b.latency) {
		switch {
		case j == len(b.latency) || i < len(a.latency) && a.latency[i].at < b.latency[j].at:
			s.latency = append(s.latency, a.latency[i])
			i++
		case i == len(a.latency) || b.latency[j].at < a.latency[i].at:
			s.latency = append(s.latency, b.latency[j])
			j++
		default:
			s.latency = append(s.latency, bin{a.latency[i].at, a.latency[i].count + b.latency[j].count})
			i, j = i+1, j+1
		}
	}
	s.latency = slices.Clone(s.latency)
	return s
}
