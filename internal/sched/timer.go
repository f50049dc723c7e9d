package sched

import "time"

// A timer calls a function after a while, once for each set. A later set takes
// the place of an earlier one; a call may still come that was under way.
type timer interface {
	set(d time.Duration)
	close() // returns when no call is under way
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
