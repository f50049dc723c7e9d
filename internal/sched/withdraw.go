package sched

import (
	"slices"

	"shoal/internal/infer"
)

// withdraw takes a call out that no instance has, and reports whether it did.
func (b *Batcher) withdraw(c *call) bool {
	return b.prune(func(e entry) bool { return e.call == c }) > 0
}

// withdrawAll takes the calls of a caller out that no instance has, and ends
// their waits.
func (b *Batcher) withdrawAll(caller *infer.Caller) {
	b.prune(func(e entry) bool {
		if e.call.caller != caller {
			return false
		}
		e.call.end(errWithdrawn)
		return true
	})
}

// prune takes the calls out that no instance has and for which gone says so, and
// returns how many.
func (b *Batcher) prune(gone func(entry) bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admit()
	n := b.queue.prune(gone)
	for _, bt := range slices.Backward(b.ready) {
		n += bt.prune(0, gone)
		if len(bt.entries) == 0 {
			b.drop(bt)
		}
	}
	for _, bt := range b.given {
		n += bt.prune(1, gone) // its leader is about to run it
	}
	if n > 0 {
		b.left(n)
		b.advance(b.now())
	}
	return n
}

// drop forgets a batch that lost all its requests before an instance had it.
func (b *Batcher) drop(bt *batch) {
	if b.open == bt {
		b.open = nil
	}
	b.ready = without(b.ready, bt)
	b.order = without(b.order, bt)
	bt.reset()
	b.batches.Put(bt)
}
