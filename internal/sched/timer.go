package sched

import "time"

// A timer calls a function after a time, once for each set. A later set
// replaces an earlier one, whose call may still come.
type timer interface {
	set(d time.Duration)
	close() // returns when no call is running
}

// A runtimeTimer is a timer of Go's runtime. In an otherwise idle process it is
// up to a millisecond late.
type runtimeTimer struct{ t *time.Timer }

func newRuntimeTimer(f func()) (timer, error) {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return &runtimeTimer{t}, nil
}

func (r *runtimeTimer) set(d time.Duration) { r.t.Reset(d) }
func (r *runtimeTimer) close()              { r.t.Stop() }

// arm makes sure that timeUp is called at t or before.
func (f *former) arm(t, now time.Time) {
	if f.inFlight == 0 {
		return // nobody waits, and Close may be closing the timer
	}
	if f.armed.IsZero() || t.Before(f.armed) {
		if f.timer == nil {
			f.timer = f.makeTimer()
		}
		f.armed = t
		f.timer.set(max(t.Sub(now), 1))
	}
}

// disarm keeps the timer from interrupting the batches that run, when what it was set
// for is done. What else depends on time arms it again.
func (f *former) disarm() {
	if f.armed.IsZero() {
		return
	}
	f.armed = time.Time{}
	f.timer.set(time.Hour)
}

// timeUp does what has become due. The timer calls it.
func (b *Batcher) timeUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = time.Time{}
	b.advance(b.now())
}
