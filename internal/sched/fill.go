package sched

import (
	"math"
	"time"
)

// Fill is the policy for callers whose batches should be full, as Auto's are where
// that saves an instance time. It is for callers that compute on the processors that
// the model runs on: there an instance that starts at once takes its processor away
// from those who would have joined, and many small batches cost all of them more.
// A batch waits for callers that are expected back, and Delay at most: neither for
// callers that there are not, nor for longer than they usually take.
type Fill struct {
	Auto
	Delay time.Duration
}

// NewFill returns a policy for batches of up to so many rows that wait up to delay.
func NewFill(maxRows int, delay time.Duration) *Fill {
	return &Fill{Auto: Auto{MaxRows: maxRows, density: 1, horizon: delay}, Delay: delay}
}

// Decide implements Policy.
func (f *Fill) Decide(v *View) Decision {
	h := v.Held
	switch {
	case h != nil && h.Ahead:
		return Decision{Start: !h.Open && worthAhead(h)}
	case h != nil:
		return f.start(v)
	case v.Idle > 0 || v.Open > 0:
		return Decision{Fill: f.MaxRows, Start: v.Requests >= v.Peak}
	case v.KeepQueued || v.Formed > 0 || v.Instances > 1: // see Auto.ahead
		return Decision{}
	case v.Rows < f.MaxRows:
		return Decision{More: f.MaxRows - v.Rows}
	}
	return Decision{Fill: f.MaxRows}
}

// start decides whether a held batch starts.
func (f *Fill) start(v *View) Decision {
	h := v.Held
	away := math.Ceil(float64(v.Peak-v.InFlight) * f.density)
	need := min(f.MaxRows-h.Rows, int(away))
	wait := min(f.Delay-v.Now.Sub(h.Since), f.returns.all.within(0.95)-v.Now.Sub(f.returns.last))
	if !h.Expires.IsZero() {
		wait = min(wait, h.Expires.Sub(v.Now)) // none waits for others beyond its own time
	}
	if !h.Open || v.Draining || need <= 0 || wait <= 0 {
		return Decision{Start: true}
	}
	return Decision{Wait: wait, More: need}
}
