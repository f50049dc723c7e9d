package infer

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Caller is the context of requests that come one after another from one
// client, such as those of an HTTP connection. Unlike another context it can
// end a wait by a call: waiting for a request's answer and for the end of its
// context at once costs a quarter more than waiting for the answer alone.
type Caller struct {
	context.Context
	cancel context.CancelFunc // nil when it was bound

	mu      sync.Mutex              // held while a wait is withdrawn
	waiting atomic.Pointer[Waiting] // gone when the caller is
}

// Waiting is a request in a queue, whose caller may go away.
type Waiting struct {
	// Withdraw takes the request out, unless it runs already, and ends the wait
	// for its answer.
	Withdraw func()
}

// gone is what a caller that has left waits for.
var gone = new(Waiting)

// NewCaller returns a caller that ends with Leave. The end of parent ends its
// context, too, but not the wait of a request that is watched.
func NewCaller(parent context.Context) *Caller {
	c := new(Caller)
	c.Context, c.cancel = context.WithCancel(parent)
	return c
}

// Bind makes c, which is new, the caller of a context that ends by other means:
// whoever ends it calls Leave then.
func (c *Caller) Bind(ctx context.Context) { c.Context = ctx }

// Watch has w withdrawn when the caller leaves. It reports false, and does
// nothing, when the caller has left or has another request waiting. Unwatch must
// follow before w is used for anything else.
func (c *Caller) Watch(w *Waiting) bool { return c.waiting.CompareAndSwap(nil, w) }

// Unwatch forgets w, which is watched. When it has returned nothing withdraws w
// any more.
func (c *Caller) Unwatch(w *Waiting) {
	if !c.waiting.CompareAndSwap(w, nil) {
		c.mu.Lock()
		//lint:ignore SA2001 Leave holds it until Withdraw has returned
		c.mu.Unlock()
	}
}

// Leave ends the context and withdraws the request that waits. It may be called
// more than once, from any goroutine.
func (c *Caller) Leave() {
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiting.Swap(gone); w != nil && w != gone {
		w.Withdraw()
	}
}
