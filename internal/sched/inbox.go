package sched

import "sync/atomic"

// An inbox takes calls in without the batcher's lock while it is open, which it is
// only while every instance is busy: there is nothing to decide then, and
// whoever frees an instance empties the inbox before it closes it. Under load
// nearly all calls come this way, and none waits for a leader that forms a batch.
//
// Anybody may put a call in; the rest is for the owner of the batcher's lock.
type inbox struct {
	newest atomic.Pointer[call] // the others follow by next; closedInbox when the inbox is closed
}

// closedInbox stands for the newest call of an inbox that is not open.
var closedInbox = new(call)

// put adds c to the inbox and reports whether that was open.
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

// open lets calls in.
func (in *inbox) open() { in.newest.CompareAndSwap(closedInbox, nil) }

// close lets no more calls in, and reports whether it did: it does not while
// there are calls in the inbox.
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
