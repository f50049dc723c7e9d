package sched

import (
	"slices"
	"time"

	"shoal/internal/infer"
)

// Triton is the policy of Triton's dynamic batcher.
type Triton struct {
	// MaxRows is the largest batch, at least 1.
	MaxRows int
	// Preferred are the sizes to start at once, ascending, not empty.
	Preferred []int
	// Delay is how long a request may wait for others to join its batch.
	Delay time.Duration
}

// Needs implements Policy.
func (p *Triton) Needs() Needs { return Needs{WhileBusy: !p.plain(), Timer: p.Delay > 0} }

// Observe implements Policy: the rules do not depend on what ran.
func (*Triton) Observe(Run) {}

// Decide applies the rules of Triton's dynamic batcher to v.
func (p *Triton) Decide(v *View) Decision {
	switch {
	case v.Held != nil:
		return p.start(v)
	case !room(v):
		return Decision{}
	case v.Queue == nil && v.Requests > 0:
		if p.plain() && !v.Mixed {
			return Decision{Fill: p.MaxRows, Start: true}
		}
		return Decision{Look: true}
	}
	return p.join(v)
}

// room reports whether requests may leave the queue. Those that may time out or
// be overtaken stay there until an instance is idle. Others leave it early,
// until two batches wait for each instance. Then the open batch does not grow
// either: it would stop at a small preferred size, while a larger one could
// gather.
func room(v *View) bool {
	if v.KeepQueued {
		return v.Idle > v.Formed || v.Open > 0
	}
	return v.Formed+v.Ahead < 2*v.Instances
}

// join decides which requests join the open batch.
func (p *Triton) join(v *View) Decision {
	var d Decision
	s := p.scan(v, &d)
	late := p.Delay > 0 && s.taken > 0 && v.Now.Sub(s.oldest) >= p.Delay
	total := v.Open + s.rows
	switch {
	case s.best > 0 && !late:
		d.Take, d.Reason = s.best, infer.ReasonPreferred
		d.Close = d.Close || p.Delay == 0
		if p.largest() == p.MaxRows && (s.force || total == p.MaxRows) {
			d.Reason = infer.ReasonFull
		}
	case s.taken == 0:
		// Nothing can join: closing the batch makes room for another.
		if d.Close {
			d.Reason = infer.ReasonFull
		}
	case s.force || total >= p.largest():
		d.Take, d.Close, d.Reason = s.taken, true, infer.ReasonFull
		if late {
			d.Reason = infer.ReasonDelay
		}
	case late:
		d.Take, d.Reason = s.taken, infer.ReasonDelay
	case p.Delay == 0:
		d.Take, d.Reason = s.taken, infer.ReasonIdle
	case v.Open > 0 && !p.prefers(v.Open):
		// The open batch has not started yet, so it can grow.
		d.Take, d.Reason = s.taken, infer.ReasonDelay
	case v.Draining:
		d.Take, d.Reason = s.taken, infer.ReasonIdle // no other will come
	default:
		d.Wait = p.Delay - v.Now.Sub(s.oldest)
		if !s.expires.IsZero() {
			d.Wait = min(d.Wait, max(s.expires.Sub(v.Now), 0))
		}
		d.More = p.nextPreferred(total) - total
	}
	return d
}

// A scan is the result of a walk over the candidates.
type scan struct {
	taken   int // how many can join
	rows    int // their rows
	best    int // how many make the best preferred size, 0 when none does
	force   bool
	oldest  time.Time
	expires time.Time // the earliest, zero when there is none
}

func (p *Triton) scan(v *View, d *Decision) scan {
	var s scan
	marked := false
	for i := range v.Queue {
		c := &v.Queue[i]
		if before := v.Open + s.rows; before > 0 { // the first is never too large
			if before+c.Rows > p.largest() && !marked {
				marked, s.best, d.Close = true, s.taken, true
			}
			if before+c.Rows > p.MaxRows {
				s.force = true
				break
			}
			if c.Differs {
				s.force, d.Close, d.Seal = true, true, true
				break
			}
		}
		s.taken++
		s.rows += c.Rows
		if s.taken == 1 || c.Queued.Before(s.oldest) {
			s.oldest = c.Queued
		}
		if !c.Expires.IsZero() && (s.expires.IsZero() || c.Expires.Before(s.expires)) {
			s.expires = c.Expires
		}
		if p.prefers(v.Open + s.rows) {
			marked, s.best = true, s.taken
		}
	}
	return s
}

// plain reports whether the policy waits for nothing and prefers no size but
// the largest.
func (p *Triton) plain() bool {
	return p.Delay == 0 && len(p.Preferred) == 1 && p.largest() == p.MaxRows
}

// largest returns the largest preferred size.
func (p *Triton) largest() int { return p.Preferred[len(p.Preferred)-1] }

func (p *Triton) prefers(rows int) bool {
	_, found := slices.BinarySearch(p.Preferred, rows)
	return found
}

// nextPreferred returns the smallest preferred size above rows. There is one
// whenever a request is left waiting.
func (p *Triton) nextPreferred(rows int) int {
	i, _ := slices.BinarySearch(p.Preferred, rows+1)
	return p.Preferred[min(i, len(p.Preferred)-1)]
}

// start decides whether a held batch starts.
func (p *Triton) start(v *View) Decision {
	h := v.Held
	if h.Ahead { // only if it can neither grow nor be merged any more
		final := !h.Open && (p.Delay == 0 || h.Sealed || h.Rows >= p.MaxRows)
		return Decision{Start: final && worthAhead(h)}
	}
	// A batch of the right size accepts no more: other requests wait in the
	// queue, under their queue policies.
	d := Decision{Start: true, Close: v.KeepQueued && p.prefers(h.Rows)}
	if p.Delay == 0 || p.MaxRows == 1 || h.Sealed || v.Formed == 0 {
		return d
	}
	if v.Behind == nil {
		return Decision{Look: true, Close: d.Close}
	}
	d.Take = p.merge(v)
	return d
}

// longestAhead is the longest run during which the next batch is prepared. A
// batch that an instance has cannot be withdrawn, and for long runs the copies
// matter little.
const longestAhead = 50 * time.Millisecond

// worthAhead reports whether a batch is prepared while its instance runs another.
func worthAhead(h *Held) bool { return h.LastRun > 0 && h.LastRun <= longestAhead }

// merge returns how many of the batches behind the held one have waited out the
// delay and fit into it.
func (p *Triton) merge(v *View) int {
	rows := v.Held.Rows
	for i := range v.Behind {
		next := &v.Behind[i]
		rows += next.Rows
		if next.Differs || rows > p.MaxRows || v.Now.Sub(next.Queued) < p.Delay {
			return i
		}
	}
	return len(v.Behind)
}
