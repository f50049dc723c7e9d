package sched

import (
	"slices"
	"time"

	"shoal/internal/infer"
)

// A batch is requests that were taken out of the queue to run together. Until
// it starts it may lose requests that are cancelled and, while it is the open
// one, gain others.
type batch struct {
	entries []entry
	rows    int
	sealed  bool
	reason  infer.Reason
	// instance is the instance that has the batch, nil while it waits for one.
	instance    *instance
	held        Held          // since it has an instance
	wait        time.Duration // before the policy is asked again
	until       time.Time     // the end of the wait of a parked batch; zero to ask now
	starts      bool          // without asking the policy again
	started     bool
	recheckRows int // its leader is woken when it has this many; 0 for never
	busy        int // how many batches ran when it started
	turn        turn
	done        bool
	run         infer.Batch
}

func (b *batch) add(e entry) {
	b.entries = append(b.entries, e)
	b.rows += e.rows
}

// leader returns the call that leads the batch.
func (b *batch) leader() *call { return b.entries[0].call }

// first returns the request that the others are compared with.
func (b *batch) first() *infer.Request { return b.entries[0].request }

// expires returns when the first of its requests would have timed out in the
// queue; zero when none would.
func (b *batch) expires() (nearest time.Time) {
	for i := range b.entries {
		if t := b.entries[i].expires(); !t.IsZero() && (nearest.IsZero() || t.Before(nearest)) {
			nearest = t
		}
	}
	return nearest
}

// prune removes the entries from index from on for which gone returns true, and
// returns how many.
func (b *batch) prune(from int, gone func(entry) bool) int {
	before := len(b.entries)
	left := slices.DeleteFunc(b.entries[from:], func(e entry) bool {
		out := gone(e)
		if out {
			b.rows -= e.rows
		}
		return out
	})
	b.entries = b.entries[:from+len(left)]
	return before - len(b.entries)
}

// fillRun fills in the infer.Batch for the instance.
func (b *batch) fillRun() {
	for i := range b.entries {
		b.run.Requests = append(b.run.Requests, b.entries[i].request)
	}
	b.run.Rows, b.run.Reason = b.rows, b.reason
}

// reset empties the batch for its next use.
func (b *batch) reset() {
	clear(b.entries)
	clear(b.run.Requests)
	*b = batch{entries: b.entries[:0], run: infer.Batch{Requests: b.run.Requests[:0]}}
}

func without(list []*batch, bt *batch) []*batch {
	for i := range list {
		if list[i] == bt {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}
