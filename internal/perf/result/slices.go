package result

import (
	"slices"
	"time"

	"shoal/internal/load"
)

// A Slice is what was recorded between two collections, about a tenth of a
// second. Windows keep their slices, so that intervals reflect how much a
// figure varies over time.
type Slice struct {
	Length   time.Duration
	Requests int64
	Rows     int64
	Sum      float64 // of the latencies, in nanoseconds
	Latency  []Bin   // rising
}

// A Bin is a number of latencies of about the same length. It is small, since
// there are many: a float32 can tell the buckets of a histogram apart.
type Bin struct {
	At    float32 // nanoseconds
	Count uint32
}

// TickLength is how often the callers' records are collected.
const TickLength = 100 * time.Millisecond

// MaxSlices bounds the slices of a window, and so its memory; neighbours are
// joined when a long window has more. Half as many are enough for an interval.
const MaxSlices = 128

// Cut adds a slice to the window.
func (w *Window) Cut(length time.Duration, requests, rows int64, latency *load.Histogram) {
	if length <= 0 && requests == 0 {
		return
	}
	s := Slice{Length: max(length, 0), Requests: requests, Rows: rows, Sum: float64(latency.Mean()) * float64(latency.Count())}
	for b := range latency.Buckets() {
		s.Latency = append(s.Latency, Bin{float32(b.From), uint32(b.Count)})
	}
	s.Latency = slices.Clone(s.Latency) // without spare capacity
	if len(w.Slices) >= MaxSlices {
		w.Slices = halved(w.Slices)
	}
	w.Slices = append(w.Slices, s)
}

// ForgetSlices frees what only a level's intervals need: a long sweep would
// keep it for every window of every level.
func (l *Level) ForgetSlices() {
	for i := range l.Windows {
		l.Windows[i].Slices = nil
	}
	if l.Merged != nil {
		l.Merged.Slices = nil
	}
}

// halved joins each slice with its neighbour.
func halved(list []Slice) []Slice {
	joined := list[:0]
	for i := 0; i+1 < len(list); i += 2 {
		joined = append(joined, join(&list[i], &list[i+1]))
	}
	if len(list)%2 == 1 {
		joined = append(joined, list[len(list)-1])
	}
	clear(list[len(joined):]) // or joined slices would stay in memory
	return joined
}

func join(a, b *Slice) Slice {
	s := Slice{Length: a.Length + b.Length, Requests: a.Requests + b.Requests, Rows: a.Rows + b.Rows, Sum: a.Sum + b.Sum}
	s.Latency = make([]Bin, 0, len(a.Latency)+len(b.Latency))
	i, j := 0, 0
	for i < len(a.Latency) || j < len(b.Latency) {
		switch {
		case j == len(b.Latency) || i < len(a.Latency) && a.Latency[i].At < b.Latency[j].At:
			s.Latency = append(s.Latency, a.Latency[i])
			i++
		case i == len(a.Latency) || b.Latency[j].At < a.Latency[i].At:
			s.Latency = append(s.Latency, b.Latency[j])
			j++
		default:
			s.Latency = append(s.Latency, Bin{a.Latency[i].At, a.Latency[i].Count + b.Latency[j].Count})
			i, j = i+1, j+1
		}
	}
	s.Latency = slices.Clone(s.Latency)
	return s
}

// Rate returns the rows answered each second.
func (s *Slice) Rate() float64 { return PerSecond(s.Rows, s.Length) }

// Mean returns the mean latency in nanoseconds.
func (s *Slice) Mean() float64 { return s.Sum / float64(max(1, s.Requests)) }
