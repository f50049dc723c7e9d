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
	// Busy and Pause make all callers send for Busy and then nothing for Pause, in turn;
	// after a pause they send one after the other, PauseGap apart. 0 is for no pauses.
	Busy, Pause, PauseGap time.Duration
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

// next returns when a caller sends again that has its answer now.
func (l *Load) next(caller int, now time.Duration, rng *rand.Rand) time.Duration {
	at := now + l.turnaround(rng)
	if l.Pause == 0 {
		return at
	}
	cycle := l.Busy + l.Pause
	if at%cycle < l.Busy {
		return at
	}
	return at - at%cycle + cycle + time.Duration(caller)*l.PauseGap
}

// between is what was answered between pauses. A span of it begins with the end of the
// first batch after a fifth of the time in which callers send.
type between struct {
	answered   int
	took, last time.Duration // last is the end of the newest batch; 0 after a pause
}

// end counts a batch that ends.
func (b *between) end(l *Load, now time.Duration, requests int) {
	if l.Pause == 0 {
		return
	}
	switch at := now % (l.Busy + l.Pause); {
	case at < l.Busy/5, at >= l.Busy:
		b.last = 0
		return
	case b.last > 0:
		b.answered += requests
		b.took += now - b.last
	}
	b.last = now
}

// begin has the first requests come.
func (r *run) begin() {
	for c := range r.Load.Callers {
		r.events.push(event{at: r.Load.next(c, 0, r.arrivals), caller: c})
	}
	if r.Load.Rate > 0 {
		r.events.push(event{at: r.gap(), caller: stream})
	}
}

// arrive has a request come that nobody sends again.
func (r *run) arrive() {
	r.send(stream)
	r.events.push(event{at: r.now + r.gap(), caller: stream})
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
