package sim

import (
	"math/rand/v2"
	"time"
)

// A Load says when requests come: from callers that wait for each answer, and
// from others that do not, or from both.
type Load struct {
	// Callers send again so long after each answer, evenly spread between the
	// two.
	Callers    int
	Turnaround [2]time.Duration
	// Rate is how many requests of others come in a second on average.
	Rate float64
	// Burst is how many of them come together on average, BurstGap apart; 0 and
	// 1 for each alone.
	Burst    float64
	BurstGap time.Duration
	// Swing makes the rate alternate between 1-Swing and 1+Swing of itself, for
	// Dwell on average.
	Swing float64
	Dwell time.Duration
}

// A source is the state of requests that come without waiting for answers.
type source struct {
	left  int           // in the burst
	fast  bool          // above the mean rate
	until time.Duration // when the rate changes
}

// turnaround returns how long a caller takes to send again.
func (l *Load) turnaround(rng *rand.Rand) time.Duration {
	least, most := l.Turnaround[0], l.Turnaround[1]
	if most <= least {
		return least
	}
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// begin has the first requests come.
func (r *run) begin() {
	for c := range r.Load.Callers {
		r.events.push(event{at: r.Load.turnaround(r.arrivals), caller: c})
	}
	if r.Load.Rate > 0 {
		r.events.push(event{at: r.gap(), caller: -1})
	}
}

// arrive has a request come that nobody sends again.
func (r *run) arrive() {
	r.send(-1)
	r.events.push(event{at: r.now + r.gap(), caller: -1})
}

// gap returns how long after the last request the next one comes.
func (r *run) gap() time.Duration {
	l, s := &r.Load, &r.source
	if s.left > 0 {
		s.left--
		return l.BurstGap
	}
	rate := l.Rate
	if l.Burst > 1 {
		rate /= l.Burst
		for r.arrivals.Float64() > 1/l.Burst { // of geometric length
			s.left++
		}
	}
	if l.Swing == 0 {
		return time.Duration(r.arrivals.ExpFloat64() / rate * 1e9)
	}
	// Past a change of the rate, what is left of the gap passes at the new one.
	work, at := r.arrivals.ExpFloat64(), r.now
	for {
		if at >= s.until {
			s.fast = !s.fast
			s.until = at + time.Duration(r.arrivals.ExpFloat64()*float64(l.Dwell))
		}
		now := rate * (1 - l.Swing)
		if s.fast {
			now = rate * (1 + l.Swing)
		}
		if passes := now * (s.until - at).Seconds(); passes < work {
			work -= passes
			at = s.until
			continue
		}
		return at + time.Duration(work/now*1e9) - r.now
	}
}
