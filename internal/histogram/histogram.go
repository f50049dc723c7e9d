package histogram

import "sync/atomic"

// A Histogram counts values in the cells of its layout. Many goroutines may use
// it. It does not keep the sum of the values: callers that measure times have
// it already, in whole nanoseconds.
type Histogram struct {
	layout *Layout
	counts []atomic.Uint64
	used   atomic.Bool // a value was added: a server may have thousands of empty ones
}

// New returns an empty histogram.
func New(l *Layout) *Histogram {
	return &Histogram{layout: l, counts: make([]atomic.Uint64, len(l.upper))}
}

// Add counts v, n times.
func (h *Histogram) Add(v float64, n uint64) {
	h.counts[h.layout.cell(v)].Add(n)
	if !h.used.Load() { // stored once, so that the cache line stays shared
		h.used.Store(true)
	}
}

// Snapshot returns the current counts. The cells are read one by one, so values
// that are added meanwhile may or may not be in it.
func (h *Histogram) Snapshot(sum float64) Snapshot {
	s := Snapshot{Layout: h.layout, Sum: sum}
	if !h.used.Load() {
		return s
	}
	s.counts = make([]uint64, len(h.counts))
	for i := range h.counts {
		s.counts[i] = h.counts[i].Load()
	}
	return s
}
