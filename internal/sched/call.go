package sched

import (
	"time"

	"shoal/internal/infer"
)

// A call is what the goroutine of a request waits by.
//
// What is written for every request has a cache line to itself: the rest
// stays in the caches of all cores, whichever of them runs the goroutine next.
type call struct {
	next    *call // in the inbox: the one that came before
	request *infer.Request
	rows    int
	caller  *infer.Caller // nil when the context is another
	leads   *batch        // the batch that it was given to lead
	after   *call         // the next in the delivery
	_       [2]uint64

	signals chan bool // buffered 1: at most one is under way
	err     error     // what went wrong with the batch, or why the request was not run
	unrun   bool      // no instance took the request
	_       [4]uint64
}

// end wakes the goroutine of a call that is not run, with the reason.
func (c *call) end(err error) {
	c.leave(err)
	c.signal()
}

// leave notes that the call is not run, with the reason.
func (c *call) leave(err error) { c.err, c.unrun = err, true }

// signal wakes the goroutine of a call: to lead a batch if leads has one, or
// because the answer is there. It does not block, for no other signal is under
// way. What it sends tells nothing and nobody keeps it: it would have to be
// written to the stack of a goroutine that another core ran last.
func (c *call) signal() { c.signals <- true }

// result returns what came of the call, and makes it as new. Nothing is written
// when nothing went wrong.
func (c *call) result() error {
	if c.err == nil {
		c.request.Started = true
		return c.request.Err
	}
	err := c.err
	c.request.Started = !c.unrun
	c.err, c.unrun = nil, false
	return err
}

// entry returns the call as it waits.
func (c *call) entry() entry { return entry{call: c, request: c.request, rows: c.rows} }

// An entry is a request that waits: all that has to be known to put it into a
// batch, and no more, for it goes from core to core. The call itself is left
// alone until it is woken.
type entry struct {
	call     *call
	request  *infer.Request
	rows     int
	patience time.Duration // how long it waits in the queue; 0 for as long as it takes
}

// expires returns when the entry has waited for long enough, zero for never.
func (e *entry) expires() time.Time {
	if e.patience == 0 {
		return time.Time{}
	}
	return e.request.Queued.Add(e.patience)
}
