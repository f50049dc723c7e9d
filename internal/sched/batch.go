package sched

import (
	"slices"

	"shoal/internal/infer"
)

// A batch is requests that were taken out of the queue to run together. Until
// it starts it may lose requests that are cancelled and, while it is the open
// one, gain others.
type batch struct {
	calls  []*call
	rows   int
	sealed bool
	reason infer.Reason
	// worker is the instance that the batch was given, nil while it waits.
	worker  *worker
	turn    uint64 // with a lane: how many batches were given before
	begun   bool   // with a lane: its turn has come
	started bool
	done    bool
	run     infer.Batch
}

func (b *batch) add(c *call) {
	c.batch = b
	b.calls = append(b.calls, c)
	b.rows += c.rows
}

func (b *batch) remove(c *call) {
	i := slices.Index(b.calls, c)
	b.calls = slices.Delete(b.calls, i, i+1)
	b.rows -= c.rows
	c.batch = nil
}

// begin makes the batch what an instance is given.
func (b *batch) begin() *infer.Batch {
	b.run.Requests = b.run.Requests[:0]
	for _, c := range b.calls {
		b.run.Requests = append(b.run.Requests, c.request)
	}
	b.run.Rows = b.rows
	return &b.run
}

// reset empties the batch for its next use.
func (b *batch) reset() {
	clear(b.calls)
	clear(b.run.Requests)
	*b = batch{calls: b.calls[:0], run: infer.Batch{Requests: b.run.Requests[:0]}}
}
