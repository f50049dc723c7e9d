package sched

import (
	"time"

	"shoal/internal/infer"
)

// advance forms the batches that are due and gives them to idle instances.
func (f *former) advance(now time.Time) {
	for {
		f.admit()
		f.form(now)
		if !f.lookAtParked(now) && !f.watchBrief(now) && f.setInbox() {
			break
		}
	}
	f.skipLooks(now)
}

// skipLooks leaves requests in the queue that come before there is something to decide: until
// the open batch is looked at again, or, while an instance is idle and nobody waits, until as
// many have come as the policy expects. The last decision holds for each of them.
func (f *former) skipLooks(now time.Time) {
	if !f.plain || !f.learns || !f.queue.empty() {
		return
	}
	if bt := f.open; bt != nil {
		if bt.recheckRows > bt.rows {
			f.recheckRows = bt.recheckRows - bt.rows
		}
		return
	}
	f.firstWait = 0
	if n := len(f.idle); n == 0 || f.hurried || f.vacant() == 0 || f.peak.most() <= len(f.all) || !f.idle[n-1].ownsThread() {
		return
	}
	if d := f.policy.Decide(f.view(now)); d.Wait > 0 {
		f.recheckRows, f.firstWait = d.More, d.Wait
	}
}

// setInbox opens the inbox if there is nothing to decide before an instance
// becomes free (whoever frees one calls advance), and closes it otherwise. It
// returns false when a call came in that must be handled first.
func (f *former) setInbox() bool {
	if f.plain && f.vacant() == 0 && f.minQueued == 0 && !f.hurried && f.waking == 0 && f.spare() == nil {
		f.inbox.open()
		return true
	}
	return f.inbox.close()
}

func (f *former) form(now time.Time) {
	for i := range f.queue.levels {
		f.queue.levels[i].expire(now, f.reject)
	}
	if f.queue.len() < f.minQueued && !f.hurried {
		return
	}
	f.minQueued, f.recheckRows, f.firstWait = 0, 0, 0
	for !f.queue.empty() {
		d := f.decide(now)
		if d.Take+d.Fill == 0 && !d.Close {
			if d.Wait > 0 {
				f.arm(now.Add(d.Wait), now)
			}
			if d.More > 0 && !f.match.compares() {
				f.recheckRows = f.queue.rows() + d.More
			}
			break
		}
		f.apply(d)
		f.dispatch(now)
	}
	f.dispatch(now)
	if t := f.queue.nearest(); !t.IsZero() {
		f.arm(t, now)
	}
}

// view returns the situation without the parts that a policy has to ask for.
func (f *former) view(now time.Time) *View {
	v := &f.situation
	v.Now, v.Draining, v.Held = now, f.hurried, nil
	v.Requests, v.Rows = f.queue.len(), f.queue.rows()
	v.Instances, v.Idle, v.Formed = f.usable(), f.vacant(), len(f.ready)
	v.Running, v.InFlight, v.Peak = f.running, f.inFlight, f.peak.most()
	v.Varies = f.peak.varying()
	v.Open, v.Ahead, v.Overlaps = 0, 0, false
	if f.open != nil {
		v.Open = f.open.rows
	}
	if len(f.all) == 1 {
		v.Ahead, v.Overlaps = max(0, f.all[0].batches-1), f.all[0].overlaps
	}
	return v
}

// decide asks the policy which of the waiting requests join the open batch.
func (f *former) decide(now time.Time) Decision {
	v := f.view(now)
	d := f.policy.Decide(v)
	if d.Look {
		v.Queue = f.look()
		d = f.policy.Decide(v)
		v.Queue = nil
	}
	return d
}

// look lists the head of the queue, as far as it could join one batch.
func (f *former) look() []Candidate {
	var first *infer.Request
	rows := 0
	if f.open != nil {
		rows, first = f.open.rows, f.open.first()
	}
	f.candidates = f.candidates[:0]
	for at, e := range f.queue.all {
		if first == nil {
			first = e.request
		}
		differs := f.match.differs(first, e.request)
		f.candidates = append(f.candidates, Candidate{Rows: e.rows, Queued: e.request.Queued, Expires: e.expires(), Level: at, Differs: differs})
		rows += e.rows
		if differs || rows > f.maxRows {
			break
		}
	}
	return f.candidates
}

// apply carries out the policy's decision.
func (f *former) apply(d Decision) {
	if f.open == nil && d.Take+d.Fill > 0 {
		f.open = f.batches.Get().(*batch)
		f.ready = append(f.ready, f.open)
		if f.ordered {
			f.order = append(f.order, f.open)
		}
	}
	bt := f.open
	if bt == nil {
		return
	}
	if d.Fill > 0 {
		d = f.fill(bt, d)
	}
	for range d.Take {
		bt.add(f.queue.next().pop())
	}
	bt.reason, bt.starts = d.Reason, d.Start
	if d.Close {
		bt.sealed = bt.sealed || d.Seal
		f.open = nil
	}
	if bt.recheckRows > 0 && (bt.rows >= bt.recheckRows || d.Close) {
		f.stopWaking(bt)
		f.wake(bt)
	}
}

// fill moves the calls at the head of the queue into a batch until it has as
// many rows as the policy wants, and returns what is left to do.
func (f *former) fill(bt *batch, d Decision) Decision {
	compares := f.match.compares()
	for list := f.queue.next(); list != nil; list = f.queue.next() {
		for list.len() > 0 {
			next := &list.list[list.head]
			if bt.rows > 0 && (bt.rows+next.rows > d.Fill || compares && f.match.differs(bt.first(), next.request)) {
				d.Close, d.Reason = true, infer.ReasonFull
				return d
			}
			bt.add(list.pop())
		}
	}
	if bt.rows >= d.Fill {
		d.Close, d.Reason = true, infer.ReasonFull
	}
	return d
}

// dispatch gives waiting batches to idle instances, and to an instance that can
// prepare their inputs while it runs another.
func (f *former) dispatch(now time.Time) {
	for len(f.ready) > 0 && f.vacant() > 0 {
		f.give(f.take(), now)
	}
	for len(f.ready) > 0 {
		i := f.spare()
		if i == nil || !f.goesAhead(f.ready[0], i, now) {
			return
		}
		i.batches++
		f.give(i, now)
	}
}

// give gives the oldest waiting batch to an instance.
func (f *former) give(i *instance, now time.Time) {
	bt := f.ready[0]
	f.ready = without(f.ready, bt)
	bt.instance, bt.turn = i, i.turns.next(&bt.run)
	f.given = append(f.given, bt)
	if f.keepQueued && f.open == bt && (i.ticket != nil || f.ask(bt, now).Close) {
		f.open = nil // with a ticket it may wait for resources; later requests wait in the queue, under their queue policy
	}
	f.lead(bt)
}
