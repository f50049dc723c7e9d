package sched

import (
	"context"
	"runtime"
)

// runBatch runs the batch that c leads, and reports whether c has its answer:
// with ordered answers it may have to wait for another batch.
func (b *Batcher) runBatch(c *call) bool {
	bt := c.leads
	c.leads = nil
	return b.leadBatch(bt, c)
}

// runGiven runs a batch that an instance has. The instance's runner calls it.
func (b *Batcher) runGiven(_ *instance, what any) { b.leadBatch(what.(*batch), nil) }

// leadBatch runs a batch for its leader, which is nil when a runner leads it, and
// reports whether the leader has its answer.
func (b *Batcher) leadBatch(bt *batch, leader *call) bool {
	_ = bt.instance.ticket.Await(context.Background()) // does not fail
	for !bt.started {
		if bt.held.Looks > 0 {
			bt.pause()
		}
		b.mu.Lock()
		b.tryStart(bt, b.now())
		b.mu.Unlock()
	}
	b.begin(bt)
	err := b.run(bt.instance, &bt.run)
	if err != nil { // otherwise neither calls nor requests are touched
		for i := range bt.entries {
			bt.entries[i].call.err = err
		}
	}
	return b.deliver(bt, leader, err)
}

// pause waits before the policy is asked again.
func (b *batch) pause() {
	if b.wait == Yield {
		runtime.Gosched()
	} else {
		b.instance.pauser.pause(b.wait)
	}
}

// begin records that the instance has the batch.
func (b *Batcher) begin(bt *batch) {
	bt.fillRun()
	if bt.turn.turns == nil {
		b.record.Started(&bt.run)
		return
	}
	bt.run.Turn = &bt.turn
	bt.turn.begin()
}

// deliver answers the requests of a batch that has run and, with ordered answers, those
// of batches that waited for it. It frees the instance and starts what is due next.
func (b *Batcher) deliver(bt *batch, leader *call, err error) bool {
	if leader == nil {
		b.lockOnThread()
	} else {
		b.mu.Lock()
	}
	i, end := bt.instance, bt.run.Times.End
	b.finish(bt, err != nil)
	if !b.ordered {
		b.leave(len(bt.entries))
		b.free(i, end)
		i.ticket.Release()
		b.mu.Unlock()
		for i := range bt.entries {
			if c := bt.entries[i].call; c != leader {
				c.signal()
			}
		}
		b.recycle(bt)
		return true
	}
	defer b.mu.Unlock()
	for len(b.order) > 0 && b.order[0].done {
		head := b.order[0]
		b.order = without(b.order, head)
		b.leave(len(head.entries))
		b.delivery.add(head.entries)
		b.recycle(head)
	}
	b.free(i, end)
	i.ticket.Release()
	return false // it is woken in order
}
