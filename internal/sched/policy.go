package sched

import (
	"slices"
	"time"

	"shoal/internal/infer"
)

// A Policy decides when the requests at the head of a queue become a batch, as
// Triton's dynamic batcher does. Policies are pure: the same view gives the
// same decision.
type Policy struct {
	// MaxRows is the largest batch, at least 1.
	MaxRows int
	// Preferred are the sizes worth sending at once, ascending, not empty.
	Preferred []int
	// Delay is how long a request may wait for company.
	Delay time.Duration
}

// A View is what a policy looks at: the batch that is open to more requests and
// those that could join it.
type View struct {
	Now time.Time
	// Open is the rows of the open batch, 0 when there is none.
	Open int
	// Queue are the waiting requests, in the order in which they are served.
	// Those after the first that cannot join need not be given.
	Queue []Candidate
}

// A Candidate is a request that waits.
type Candidate struct {
	Rows   int
	Queued time.Time
	// Expires is when the request times out; zero when it does not.
	Expires time.Time
	// Differs says that its inputs cannot be in one batch with those of the
	// batch's first request.
	Differs bool
}

// A Decision says what to do now: put the first Take candidates into the open
// batch, or, when Take is zero, look again after Wait or as soon as More rows
// have arrived.
type Decision struct {
	Take int
	// Close says that the batch takes no more after this.
	Close bool
	// Seal says that it may not be merged with another either.
	Seal   bool
	Reason infer.Reason
	// Wait is zero when nothing waits.
	Wait time.Duration
	More int
}

// Decide applies the rules of Triton's dynamic batcher to v.
func (p Policy) Decide(v View) Decision {
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
		// Nothing can join: the batch, if closed now, makes room for another.
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
		// The open batch has not started yet, so it may as well be larger.
		d.Take, d.Reason = s.taken, infer.ReasonDelay
	default:
		d.Wait = p.Delay - v.Now.Sub(s.oldest)
		if !s.expires.IsZero() {
			d.Wait = min(d.Wait, max(s.expires.Sub(v.Now), 0))
		}
		d.More = p.nextPreferred(total) - total
	}
	return d
}

// A scan is what a walk over the candidates found.
type scan struct {
	taken   int // how many can join
	rows    int // their rows
	best    int // how many make the best preferred size, 0 when none does
	force   bool
	oldest  time.Time
	expires time.Time // the nearest, zero when there is none
}

func (p Policy) scan(v View, d *Decision) scan {
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

// plain says that the policy waits for nothing and prefers no size but the
// largest.
func (p Policy) plain() bool {
	return p.Delay == 0 && len(p.Preferred) == 1 && p.largest() == p.MaxRows
}

// largest returns the largest preferred size.
func (p Policy) largest() int { return p.Preferred[len(p.Preferred)-1] }

func (p Policy) prefers(rows int) bool {
	_, found := slices.BinarySearch(p.Preferred, rows)
	return found
}

// nextPreferred returns the smallest preferred size above rows. There is one
// whenever a request is left waiting.
func (p Policy) nextPreferred(rows int) int {
	i, _ := slices.BinarySearch(p.Preferred, rows+1)
	return p.Preferred[min(i, len(p.Preferred)-1)]
}
