package sched

import (
	"context"
	"runtime"
	"time"

	"shoal/internal/infer"
)

// lead runs the batch that c was given to lead, and reports whether c has its
// answer: with ordered answers it may have to wait for another batch.
func (b *Batcher) lead(c *call) bool {
	bt := c.leads
	c.leads = nil
	_ = bt.worker.ticket.Await(context.Background()) // does not fail
	if b.gathers {
		b.gather(bt)
	}
	run := b.start(bt)
	err := execute(bt.worker.instance, run)
	if bt.worker.lane != nil {
		bt.Await() // in case the instance did not come that far
	}
	run.Times.End = time.Now()
	bt.worker.leave(run)
	b.record.Executed(run, err)
	return b.finish(bt, c, err)
}

// gather lets goroutines that are about to bring requests have their turn
// before the batch starts: one that starts at once is a small one. It expects as
// many as have been inside at once of late, so a lone caller never waits,
// and goes on for as long as more arrive, but no longer than a small part of
// what the instance's last batch took.
func (b *Batcher) gather(bt *batch) {
	w := bt.worker
	here, wanted := b.company(bt)
	if here >= wanted {
		return
	}
	if w.lastRun < shortRun {
		runtime.Gosched()
		return
	}
	begin, pause, misses := time.Now(), time.Duration(0), 0
	for {
		w.pauser.pause(pause)
		before := here
		if here, wanted = b.company(bt); here >= wanted {
			return
		}
		if here > before || pause == 0 {
			misses = 0
		} else {
			misses++
		}
		pause = max(minPause, w.lastRun/gatherSteps)
		if misses == b.patience || time.Since(begin)+pause > w.lastRun/gatherPart {
			return
		}
	}
}

// How long a leader gathers: at most a quarter of the last run, in steps of a
// sixty-fourth, of which four in a row may bring nothing. Measured with an MLP on
// two cores, where the turn of 64 clients takes about a quarter: their mean batch
// was 54, and 40 with half the time; and with ResNet-50 on a GPU, where 8 clients
// send 602 KB each: their mean batch was 8.0, and 6.9 when the first step that
// brought nothing was the last. With several instances it is: those who are waited
// for may be another's, which would be idle. For a model that takes less than a few looks at
// the sockets, goroutines that are ready must do.
const (
	shortRun     = 50 * time.Microsecond
	gatherPart   = 4
	gatherSteps  = 64
	gatherMisses = 4
	minPause     = 20 * time.Microsecond
)

// company returns how many requests a batch has and how many it could have;
// none more when it is not open or large enough.
func (b *Batcher) company(bt *batch) (here, wanted int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.door.knocked() {
		b.advance(b.now())
	}
	if b.open != bt || bt.rows >= b.policy.largest() {
		return len(bt.entries), 0
	}
	return len(bt.entries), b.crowd
}

// start closes the batch and returns what the instance is given.
func (b *Batcher) start(bt *batch) *infer.Batch {
	b.mu.Lock()
	now := b.now()
	if b.door.knocked() {
		b.advance(now)
	}
	if b.open == bt {
		b.open = nil
	}
	if b.merge(bt, now) {
		b.advance(now) // there is room for others
	}
	b.given = without(b.given, bt)
	b.crowd -= (b.crowd - b.inside + 3) / 4 // forget slowly those who stay away
	b.mu.Unlock()
	run := bt.begin()
	run.Reason = bt.reason
	run.Times = infer.Times{Start: now}
	if l := bt.worker.lane; l != nil {
		run.Turn = bt
		l.begin(bt)
	} else {
		b.record.Started(run)
	}
	return run
}

// merge adds the batches behind bt that have waited out the delay and fit, and
// reports whether there were any.
func (b *Batcher) merge(bt *batch, now time.Time) (merged bool) {
	if b.policy.Delay == 0 || b.policy.MaxRows == 1 || bt.sealed {
		return false
	}
	for len(b.ready) > 0 {
		next := b.ready[0]
		if next.sealed || bt.rows+next.rows > b.policy.MaxRows || now.Sub(next.entries[0].request.Queued) < b.policy.Delay ||
			b.match.differs(bt.entries[0].request, next.entries[0].request) {
			return merged
		}
		for _, e := range next.entries {
			bt.add(e)
		}
		b.drop(next)
		merged = true
	}
	return merged
}

// finish frees the instance, starts what is due next and answers the requests
// of the batch and, with ordered answers, those of batches that waited for it.
func (b *Batcher) finish(bt *batch, leader *call, err error) bool {
	if err != nil { // else neither calls nor requests are touched
		for i := range bt.entries {
			bt.entries[i].call.err = err
		}
	}
	b.mu.Lock()
	b.lastRun = bt.worker.lastRun
	b.rest(bt.worker)
	b.advance(bt.run.Times.End)
	bt.worker.ticket.Release()
	bt.done = true
	if !b.ordered {
		b.left(len(bt.entries))
		b.mu.Unlock()
		b.deliver(bt, leader)
		return true
	}
	defer b.mu.Unlock()
	for len(b.order) > 0 && b.order[0].done {
		head := b.order[0]
		b.order = without(b.order, head)
		b.left(len(head.entries))
		b.line.join(head.entries)
		head.reset()
		b.batches.Put(head)
	}
	return false // its turn is in the line
}

// deliver tells every call of a batch that has run, but the leader's, that its
// answer is there.
func (b *Batcher) deliver(bt *batch, leader *call) {
	for i := range bt.entries {
		if c := bt.entries[i].call; c != leader {
			c.signal()
		}
	}
	bt.reset()
	b.batches.Put(bt)
}
