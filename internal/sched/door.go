package sched

import "sync/atomic"

// A door lets calls in without the batcher's lock while it is open, which it is
// only while every instance is busy: there is nothing to decide then, and
// whoever frees an instance looks behind the door before it shuts it. Under load
// nearly all calls come this way, and none waits for a leader that forms a batch.
//
// Anybody may enter; the rest is for the owner of the batcher's lock.
type door struct {
	newest atomic.Pointer[call] // the others follow by next; shut when the door is
}

// shut stands for the newest call of a door that is not open.
var shut = new(call)

// enter puts c behind the door and reports whether that was open.
func (d *door) enter(c *call) bool {
	for {
		newest := d.newest.Load()
		if newest == shut {
			return false
		}
		c.next = newest
		if d.newest.CompareAndSwap(newest, c) {
			return true
		}
	}
}

// open lets calls in.
func (d *door) open() { d.newest.CompareAndSwap(shut, nil) }

// shut lets no more calls in, and reports whether it did: it does not while
// somebody is behind the door.
func (d *door) shut() bool {
	return d.newest.Load() == shut || d.newest.CompareAndSwap(nil, shut)
}

// knocked reports whether anybody is behind the door.
func (d *door) knocked() bool {
	newest := d.newest.Load()
	return newest != nil && newest != shut
}

// take returns the newest of those who came in, nil when nobody did. The others
// follow by next.
func (d *door) take() *call {
	if !d.knocked() {
		return nil
	}
	return d.newest.Swap(nil)
}
