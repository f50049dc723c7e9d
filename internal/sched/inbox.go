package sched

import "sync/atomic"

// An inbox accepts calls without the batcher's lock while it is open. It is
// open only while every instance is busy: there is nothing to decide then, and
// whoever frees an instance empties the inbox before it closes it. Under load
// nearly all calls come this way, and none waits for a leader that forms a
// batch.
//
// Any goroutine may call put; the other methods need the batcher's lock.
type inbox struct {
	newest atomic.Pointer[call] // the others follow by next; closedInbox when the inbox is closed
}

// closedInbox is the newest call of a closed inbox.
var closedInbox = new(call)

// put adds c to the inbox and reports whether it was open.
func (in *inbox) put(c *call) bool {
	for {
		newest := in.newest.Load()
		if newest == closedInbox {
			return false
		}
		c.next = newest
		if in.newest.CompareAndSwap(newest, c) {
			return true
		}
	}
}

// open makes the inbox accept calls.
func (in *inbox) open() { in.newest.CompareAndSwap(closedInbox, nil) }

// close makes the inbox accept no more calls, unless it has some, and reports
// whether it did.
func (in *inbox) close() bool {
	return in.newest.Load() == closedInbox || in.newest.CompareAndSwap(nil, closedInbox)
}

// filled reports whether there are calls in the inbox.
func (in *inbox) filled() bool {
	newest := in.newest.Load()
	return newest != nil && newest != closedInbox
}

// take empties the inbox and returns the newest call, nil when there is none. The
// others follow by next.
func (in *inbox) take() *call {
	if !in.filled() {
		return nil
	}
	return in.newest.Swap(nil)
}
