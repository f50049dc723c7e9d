package sched

import (
	"context"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// A Batcher gathers requests into batches and runs them on a model's instances,
// as its policy decides.
//
// The goroutine of a batch's first request leads it: it runs the instance,
// answers the other requests and, when the next batch is due, makes the first
// request of that batch its leader. Every request is woken at most once, and a
// single request stays on its goroutine. Under load, where runs are long, the
// runner of an instance leads its batches instead.
type Batcher struct {
	former
	place infer.Place // for callers that leave
	calls sync.Pool

	// Under the pool's mutex.
	arriving *call    // holds the lock, so it need not be signalled to lead
	delivery delivery // with ordered: calls of batches that have run
}

// StartBatcher returns a batcher over the instances, which stay the caller's
// and must outlive it.
func StartBatcher(cfg BatcherConfig, instances []backend.Instance, record Recorder) (*Batcher, error) {
	if !onThreads(instances) {
		cfg.Cores = nil
	}
	return startBatcher(cfg, instances, record, newTimer, newPauser)
}

func startBatcher(cfg BatcherConfig, instances []backend.Instance, record Recorder, newTimer func(func()) (timer, error), newPauser func() (pauser, error)) (*Batcher, error) {
	b := new(Batcher)
	b.init(&cfg, record)
	b.situation.Computes = onThreads(instances)
	b.newPauser, b.lead, b.wake, b.unpark, b.end, b.serve = newPauser, b.signal, wakeLeader, b.handBatch, expire, b.runGiven
	b.place.Withdraw = b.withdrawAll
	b.calls.New = func() any { return &call{signals: make(chan bool, 1)} }
	b.makeTimer = func() timer { // when a batch waits for the first time
		t, err := newTimer(b.timeUp)
		if err != nil { // there are too many open files
			t, _ = newRuntimeTimer(b.timeUp) // does not fail
		}
		return t
	}
	if b.timed() {
		var err error
		if b.timer, err = newTimer(b.timeUp); err != nil {
			return nil, err
		}
	}
	if err := b.Add(instances...); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// signal finds a leader for a batch: its first call, or the instance's runner.
func (b *Batcher) signal(bt *batch) {
	c := bt.leader()
	switch {
	case b.leadByRunner(bt.instance, c):
		b.park(bt)
	case c == b.arriving:
		c.leads = bt
	default:
		c.leads = bt
		c.signal()
	}
}

// leadByRunner reports whether the runner of an instance leads a batch. Under
// load it does: the system then keeps each instance's thread on a core of its
// own. A call that finds the instance idle leads its batch itself, which is
// cheaper than waking a thread, unless there are more callers than instances: then
// others join, and to wait for them as a leader costs more.
func (b *Batcher) leadByRunner(i *instance, c *call) bool {
	if i.batches > 1 || !i.ownsThread() {
		return false
	}
	return c != b.arriving || b.peak.most() > len(b.all)
}

// wakeLeader ends the wait of a batch's leader.
func wakeLeader(bt *batch) {
	if bt.until.IsZero() {
		bt.instance.pauser.wake()
		return
	}
	bt.until = time.Time{} // it is parked, and looked at next
}

// handBatch makes the runner of a batch's instance lead it.
func (b *Batcher) handBatch(bt *batch) { b.handOver(bt.instance, bt) }

// expire wakes a call whose queue timeout has passed.
func expire(c *call) { c.end(ErrTimeout) }

// Do implements Scheduler.
func (b *Batcher) Do(ctx context.Context, r *infer.Request) error {
	c := b.calls.Get().(*call)
	now := b.now()
	r.Queued = now
	c.request, c.rows = r, max(r.Rows, 1)
	c.caller, _ = ctx.(*infer.Caller)
	leads := false
	// The path through the inbox is short, and so is the stack of a goroutine
	// that waits after it: other cores have to fetch that stack.
	if !b.inbox.put(c) {
		var err error
		if leads, err = b.enqueue(c, now); err != nil {
			r.Outcome = infer.Refused
			b.release(c)
			return err
		}
	}
	entered(r)
	for !leads || !b.runBatch(c) {
		if c.caller == nil || !c.caller.WaitsAt(&b.place) {
			b.await(ctx, c)
			break
		}
		<-c.signals
		if leads = c.leads != nil; !leads {
			break
		}
	}
	if b.ordered {
		b.mu.Lock()
		b.delivery.remove(c)
		b.mu.Unlock()
	}
	err := c.result()
	b.release(c)
	return err
}

// release keeps a call for another request.
func (b *Batcher) release(c *call) {
	c.next, c.request, c.caller = nil, nil, nil
	b.calls.Put(c)
}

// enqueue puts the call into the queue and does what has become due. It reports
// whether the call already leads a batch.
func (b *Batcher) enqueue(c *call, now time.Time) (leads bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return false, stopping(c.request)
	}
	b.arriving = c
	err = b.push(c, now)
	b.arriving = nil
	if leads = c.leads != nil; leads && c.leads.instance.ticket == nil {
		b.tryStart(c.leads, now)
	}
	return leads, err
}

// await returns when the call has its answer, or was withdrawn at the end of
// ctx. If the call becomes the leader of its batch, await runs the batch.
func (b *Batcher) await(ctx context.Context, c *call) {
	for {
		select {
		case <-c.signals:
		case <-ctx.Done():
			if b.withdraw(c) {
				c.leave(cancelled(ctx))
				return
			}
			<-c.signals // it runs, or is about to
		}
		if c.leads == nil || b.runBatch(c) {
			return
		}
		ctx = context.Background() // only wait for the order of answers
	}
}

// Pending returns how many requests wait for an instance.
func (b *Batcher) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending()
}

// Close implements Scheduler.
func (b *Batcher) Close() {
	b.pool.Close()
	if b.timer != nil {
		b.timer.close()
	}
}
