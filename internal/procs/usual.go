package procs

import "time"

// Usual is how long the native calls of one kind usually take. A single call that
// takes much longer counts little: the system has probably stopped its thread. A
// processor more would then only make the next ones wait, too.
type Usual struct{ took time.Duration }

// Observe learns from a call.
func (u *Usual) Observe(took time.Duration) {
	if u.took == 0 {
		u.took = min(took, Long/2) // first calls are slow
	}
	u.took += (min(took, 2*u.took+time.Microsecond) - u.took) / 16
}

// Long reports whether a call is worth a processor.
func (u *Usual) Long() bool { return u.took >= Long }
