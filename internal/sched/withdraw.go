package sched

import "shoal/internal/infer"

// withdraw removes a call that no instance has, and reports whether it did.
func (b *Batcher) withdraw(c *call) bool {
	return b.takeOut(func(e entry) bool { return e.call == c }) > 0
}

// withdrawAll removes the calls of a caller that no instance has, and ends
// their waits.
func (b *Batcher) withdrawAll(caller *infer.Caller) {
	b.takeOut(func(e entry) bool {
		if e.call.caller != caller {
			return false
		}
		e.call.end(errWithdrawn)
		return true
	})
}

// takeOut removes the calls that no instance has and for which gone returns
// true, and returns how many.
func (b *Batcher) takeOut(gone func(entry) bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.prune(gone, b.now())
}
