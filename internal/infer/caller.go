package infer

import (
	"context"
	"sync/atomic"
)

// A Caller is the context of requests that come one after another from one
// client, such as those of an HTTP connection. Unlike another context it can
// end a wait by a call: waiting for a request's answer and for the end of its
// context at once costs a quarter more than waiting for the answer alone.
type Caller struct {
	context.Context
	cancel context.CancelFunc // nil when it was bound

	left   atomic.Bool
	places [maxPlaces]atomic.Pointer[Place] // where its requests have waited; the first nil ends them
}

// maxPlaces is how many models a client may ask in turn at the lower cost.
const maxPlaces = 4

// A Place is where requests wait.
type Place struct {
	// Withdraw takes out the requests of a caller that has left, but for those
	// that run already, and ends the waits for their answers.
	Withdraw func(*Caller)
}

// NewCaller returns a caller that ends with Leave. The end of parent ends its
// context, too, but not the wait of a request at a place.
func NewCaller(parent context.Context) *Caller {
	c := new(Caller)
	c.Context, c.cancel = context.WithCancel(parent)
	return c
}

// Bind makes c, which is new, the caller of a context that ends by other means:
// whoever ends it calls Leave then.
func (c *Caller) Bind(ctx context.Context) { c.Context = ctx }

// WaitsAt has the caller's requests withdrawn from p when it leaves, now and
// later. Whoever waits calls it when the request is there already. It reports
// false when the caller has left or has been to too many places: the end of its
// context has to be waited for then.
//
// It only reads, but for the first request at a place, so that the caller stays
// in the caches of all cores.
func (c *Caller) WaitsAt(p *Place) bool {
	for i := range c.places {
		if c.places[i].Load() == nil {
			c.places[i].CompareAndSwap(nil, p)
		}
		if c.places[i].Load() == p {
			return !c.left.Load() // if not, Leave sees p
		}
	}
	return false
}

// Leave ends the context and withdraws the requests that wait. It may be called
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
