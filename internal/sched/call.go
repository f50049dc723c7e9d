package sched

import (
	"time"

	"shoal/internal/infer"
)

// A call is what the goroutine of a request waits by.
//
// What is written for every request has a line of the cache to itself: the rest
// stays in the caches of all cores, whichever of them runs the goroutine next.
type call struct {
	next    *call // behind the door: the one that came before
	request *infer.Request
	rows    int
	caller  *infer.Caller // nil when the context is another
	leads   *batch        // the batch that it was given to lead
	after   *call         // the next in the line
	_       [2]uint64

	signals chan signal // buffered 1: at most one is under way
	err     error       // what went wrong with the request
	_       [5]uint64
}

// A signal tells the goroutine that waits by a call what to do.
type signal uint8

const (
	signalDone signal = iota // the answer is there
	signalLead               // run the batch that the call leads
)

// end wakes the goroutine of a call that is not run, with the reason.
func (c *call) end(err error) {
	c.err = err
	c.signals <- signalDone // buffered, and its last signal
}

// entry returns the call as it waits.
func (c *call) entry() entry {
	return entry{call: c, request: c.request, rows: c.rows, caller: c.caller}
}

// An entry is a request that waits: all that has to be known to put it into a
// batch. The call itself is left alone until it is woken, for another core
// touched it last.
type entry struct {
	call    *call
	request *infer.Request
	rows    int
	caller  *infer.Caller // nil when the context is another
	expires time.Time     // zero for never
}
