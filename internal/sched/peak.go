package sched

import "math"

// A peak is the greatest of what was seen of late: in the current span and in the
// one before it. A span is a number of batches, so that callers who take turns are
// all seen in it, and those who stay away are soon forgotten.
type peak struct {
	now, before, batches, spans int
	varies                      float64 // by how much of itself from one span to the next
}

// peakMemory is the batches of a span for each instance.
const peakMemory = 6

func (p *peak) see(n int) { p.now = max(p.now, n) }

func (p *peak) most() int { return max(p.now, p.before) }

// pass notes that a batch starts, of a span of so many, while n are in flight.
func (p *peak) pass(n, span int) {
	if p.batches++; p.batches >= span {
		change := math.Abs(float64(p.now-p.before)) / float64(p.most())
		p.spans++
		p.varies += (change - p.varies) / float64(min(p.spans, 4)) // all of it at first
		p.now, p.before, p.batches = n, p.now, 0
	}
}

// varying returns by how much of itself it changes; all of it while that is not
// known.
func (p *peak) varying() float64 {
	if p.spans == 0 {
		return 1
	}
	return p.varies
}
