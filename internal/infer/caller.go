package infer

import (
	"context"
	"sync/atomic"
)

// A Caller is the context of successive requests of one client, such as those
// of an HTTP connection. Unlike another context it can end a wait by a call:
// waiting for both a request's answer and the end of its context costs a
// quarter more CPU than waiting for the answer alone.
type Caller struct {
	context.Context
	cancel context.CancelFunc // nil when it was bound

	left   atomic.Bool
	places [maxPlaces]atomic.Pointer[Place] // where its requests have waited; the first nil ends the list
}

// maxPlaces is how many models a client may use alternately at the lower cost.
const maxPlaces = 4

// A Place is where requests wait.
type Place struct {
	// Withdraw removes the waiting requests of a caller that has left, except
	// those that already run, and ends the waits for their answers.
	Withdraw func(*Caller)
}

// NewCaller returns a caller that ends with Leave. The end of parent also ends
// its context, but not the wait of a request at a place.
func NewCaller(parent context.Context) *Caller {
	c := new(Caller)
	c.Context, c.cancel = context.WithCancel(parent)
	return c
}

// Bind makes the new caller c use a context that ends by other means: whoever
// ends it must call Leave.
func (c *Caller) Bind(ctx context.Context) { c.Context = ctx }

// WaitsAt makes Leave withdraw the caller's requests from p, now and later. A
// waiting request calls it after it has entered p. It returns false when the
// caller has left or has used too many places: the request must then wait for
// the end of the context too.
//
// It only reads, except for the first request at a place, so that the caller's
// cache line can be shared by all cores.
func (c *Caller) WaitsAt(p *Place) bool {
	for i := range c.places {
		if c.places[i].Load() == nil {
			c.places[i].CompareAndSwap(nil, p)
		}
		if c.places[i].Load() == p {
			return !c.left.Load() // otherwise Leave sees p
		}
	}
	return false
}

// Leave ends the context and withdraws the waiting requests. It may be called
// more than once, from any goroutine.
func (c *Caller) Leave() {
	if c.cancel != nil {
		c.cancel()
	}
	if c.left.Swap(true) {
		return
	}
	for i := range c.places {
		if p := c.places[i].Load(); p != nil {
			p.Withdraw(c)
		}
	}
}
