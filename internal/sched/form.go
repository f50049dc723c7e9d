package sched

import (
	"slices"
	"time"

	"shoal/internal/infer"
)

// advance forms the batches that are due and gives them to idle instances.
func (b *Batcher) advance(now time.Time) {
	for {
		b.admit()
		b.form(now)
		if b.guard() {
			return
		}
	}
}

// guard leaves the door open if nothing is to be decided before an instance is
// free, for whoever frees one calls advance, and shuts it otherwise. It reports
// false when somebody came in who has to be seen to first.
func (b *Batcher) guard() bool {
	if b.plain && len(b.idle)+len(b.spare) == 0 && b.hold == 0 && !b.closing {
		b.door.open()
		return true
	}
	return b.door.shut()
}

func (b *Batcher) form(now time.Time) {
	for i := range b.queue.levels {
		b.queue.levels[i].expire(now, b.reject)
	}
	if b.queue.len() < b.hold && !b.closing {
		return
	}
	b.hold, b.more = 0, 0
	for b.room() && !b.queue.empty() {
		if b.plain {
			b.fill()
			b.dispatch()
			continue
		}
		d := b.policy.Decide(b.look(now))
		if b.closing && d.Take == 0 && !d.Close {
			d = Decision{Take: len(b.view), Reason: infer.ReasonIdle} // nobody else will come
		}
		if d.Take == 0 && !d.Close {
			b.more = b.queue.rows() + d.More
			if b.match.compares() {
				b.more = 0
			}
			b.arm(now.Add(d.Wait), now)
			break
		}
		b.apply(d)
		b.dispatch()
	}
	b.dispatch()
	if t := b.queue.nearest(); !t.IsZero() {
		b.arm(t, now)
	}
}

// fill puts the calls at the head of the queue into the open batch, until it is
// full. With a plain policy that is all that there is to decide.
func (b *Batcher) fill() {
	list := &b.queue.levels[0].live
	if b.open == nil {
		b.openBatch(infer.ReasonIdle)
	}
	bt := b.open
	for list.len() > 0 && (bt.rows == 0 || bt.rows+list.waiting()[0].rows <= b.policy.MaxRows) {
		bt.add(list.pop())
	}
	if list.len() > 0 || bt.rows >= b.policy.MaxRows {
		bt.reason = infer.ReasonFull
		b.open = nil
	}
}

// openBatch begins a batch.
func (b *Batcher) openBatch(why infer.Reason) {
	b.open = b.batches.Get().(*batch)
	b.open.reason = why
	b.ready = append(b.ready, b.open)
	if b.ordered {
		b.order = append(b.order, b.open)
	}
}

// room reports whether requests may leave the queue. Those that may time out or
// be overtaken stay there until an instance is idle; others leave it early, until
// two batches wait for each instance. Then the open one does not grow either: it
// would stop at a small preferred size, where a larger one may gather meanwhile.
func (b *Batcher) room() bool {
	if b.prefetch {
		return len(b.ready)+b.taken() < 2*b.workers
	}
	return len(b.idle) > len(b.ready) || b.open != nil
}

// taken returns how many batches an instance has taken ahead.
func (b *Batcher) taken() int {
	return max(0, len(b.all)-len(b.idle)-len(b.spare)-b.workers)
}

// look returns what the policy decides on: the head of the queue, as far as it
// could go into one batch.
func (b *Batcher) look(now time.Time) View {
	v := View{Now: now}
	var first *infer.Request
	if b.open != nil {
		v.Open, first = b.open.rows, b.open.entries[0].request
	}
	b.view = b.view[:0]
	rows := v.Open
	for e := range b.queue.all {
		if first == nil {
			first = e.request
		}
		differs := b.match.differs(first, e.request)
		b.view = append(b.view, Candidate{Rows: e.rows, Queued: e.request.Queued, Expires: e.expires(), Differs: differs})
		rows += e.rows
		if differs || rows > b.policy.MaxRows {
			break
		}
	}
	v.Queue = b.view
	return v
}

// apply does what the policy decided.
func (b *Batcher) apply(d Decision) {
	if d.Take > 0 {
		if b.open == nil {
			b.openBatch(d.Reason)
		}
		b.open.reason = d.Reason
		for range d.Take {
			b.open.add(b.queue.pop())
		}
	}
	if d.Close && b.open != nil {
		b.open.reason = d.Reason
		b.open.sealed = b.open.sealed || d.Seal
		b.open = nil
	}
}

// dispatch gives waiting batches to idle instances, and some to an instance that
// can get their inputs ready meanwhile, and tells their leaders.
func (b *Batcher) dispatch() {
	for len(b.ready) > 0 && len(b.idle) > 0 {
		b.give(b.takeWorker())
	}
	for len(b.ready) > 0 && len(b.spare) > 0 && b.ahead(b.ready[0]) {
		last := len(b.spare) - 1
		w := b.spare[last]
		b.spare = b.spare[:last]
		b.give(w)
	}
}

// ahead reports whether a batch may be given to an instance that runs another:
// it can neither grow nor be merged any more, and is likely to run soon. What an
// instance has cannot be withdrawn, and copies matter little beside a long run.
func (b *Batcher) ahead(bt *batch) bool {
	final := bt != b.open && (b.policy.Delay == 0 || bt.sealed || bt.rows >= b.policy.MaxRows)
	return final && b.lastRun > 0 && b.lastRun <= aheadOf
}

// aheadOf is the longest run during which the next batch is got ready.
const aheadOf = 50 * time.Millisecond

// give gives the oldest batch that waits to a worker.
func (b *Batcher) give(w *worker) {
	bt := b.ready[0]
	b.ready = without(b.ready, bt)
	bt.worker = w
	w.ticket.Ask()
	if w.lane != nil {
		bt.turn = w.lane.given
		w.lane.given++
	}
	if !b.prefetch && b.open == bt && (w.ticket != nil || b.policy.prefers(bt.rows)) {
		b.open = nil // it may wait for resources, or is as large as it should be; the others wait in the queue, where their policy holds
	}
	b.given = append(b.given, bt)
	c := bt.leader()
	c.leads = bt
	if c != b.arriving {
		c.signal()
	}
}

// takeWorker takes an idle instance.
func (b *Batcher) takeWorker() *worker {
	next := nextIdle(b.idle, func(w *worker) *Ticket { return w.ticket })
	w := b.idle[next]
	b.idle = slices.Delete(b.idle, next, next+1)
	return w
}
