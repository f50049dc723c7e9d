package sched

import (
	"time"

	"shoal/internal/infer"
)

// A call is a request in the batcher, and what its goroutine waits on.
//
// The fields that are written for every request have a cache line to
// themselves: the rest stays in the caches of all cores, whichever of them runs
// the goroutine next.
type call struct {
	next    *call // in the inbox: the previous one
	request *infer.Request
	rows    int
	caller  *infer.Caller // nil when the context is not a Caller
	leads   *batch        // the batch that it leads
	after   *call         // the next in the delivery
	_       [2]uint64

	signals chan bool // buffered 1: there is at most one signal
	err     error     // why the batch failed, or the request was not run
	unrun   bool      // no instance took the request
	_       [4]uint64
}

// end wakes the goroutine of a call that is not run, with the reason.
func (c *call) end(err error) {
	c.leave(err)
	c.signal()
}

// leave records that the call is not run, with the reason.
func (c *call) leave(err error) { c.err, c.unrun = err, true }

// signal wakes the goroutine of a call: to lead a batch if leads is set, or
// because its answer is ready. It does not block, since there is no other
// signal. The receiver ignores the value: storing it would write to the stack
// of a goroutine that another core ran last.
func (c *call) signal() { c.signals <- true }

// result returns the call's error and resets the call. It writes nothing when
// there was no error.
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

// entry returns the call's entry for a queue or batch.
func (c *call) entry() entry { return entry{call: c, request: c.request, rows: c.rows} }

// An entry is a waiting request: only what is needed to put it into a batch,
// since entries move from core to core. The call itself is not touched until it
// is woken.
type entry struct {
	call     *call
	request  *infer.Request
	rows     int
	patience time.Duration // how long it may wait in the queue; 0 for no limit
}

// expires returns when the entry's queue timeout passes, zero for never.
func (e *entry) expires() time.Time {
	if e.patience == 0 {
		return time.Time{}
	}
	return e.request.Queued.Add(e.patience)
}
