package sched

import (
	"slices"
	"time"

	"shoal/internal/infer"
)

// tryStart starts a batch that an instance holds if the policy says so.
func (f *former) tryStart(bt *batch, now time.Time) {
	if f.inbox.filled() || f.learns && !f.queue.empty() {
		f.advance(now)
	}
	if f.lookAt(bt, now) {
		f.advance(now) // no request may enter unnoticed now
	}
}

// lookAt asks the policy about a held batch and starts it, or reports that its leader
// is to be woken when more rows have come.
func (f *former) lookAt(bt *batch, now time.Time) (wakes bool) {
	if bt.recheckRows > 0 {
		f.stopWaking(bt)
	}
	h := &bt.held
	if h.Looks == 0 {
		h.Since = now
		if first := bt.first().Queued; f.plain && f.learns && first.After(bt.instance.lastEnd) {
			h.Since = first // it was left in the queue
		}
	}
	d := Decision{Start: true}
	if !bt.starts {
		d = f.ask(bt, now)
	}
	h.Looks++
	bt.wait = d.Wait
	if d.Start && d.Wait != Yield {
		f.start(bt, d, now)
		return false
	}
	bt.starts = d.Start
	if d.More == 0 || f.open != bt {
		return false
	}
	bt.recheckRows = bt.rows + d.More
	f.waking++
	return true
}

// stopWaking records that a batch's leader need not be woken.
func (f *former) stopWaking(bt *batch) {
	bt.recheckRows = 0
	f.waking--
}

// ask asks the policy whether a held batch starts.
func (f *former) ask(bt *batch, now time.Time) Decision {
	h := &bt.held
	h.Rows, h.Requests, h.Open, h.Sealed, h.LastRun = bt.rows, len(bt.entries), f.open == bt, bt.sealed, bt.instance.lastRun
	h.Newest = bt.entries[len(bt.entries)-1].request.Queued
	if f.keepQueued {
		h.Expires = bt.expires()
	}
	v := f.view(now)
	v.Held = h
	d := f.policy.Decide(v)
	if d.Look {
		v.Behind = f.behind(bt)
		d = f.policy.Decide(v)
		v.Behind = nil
	}
	return d
}

// goesAhead asks the policy whether an instance that runs a batch gets another.
func (f *former) goesAhead(bt *batch, i *instance, now time.Time) bool {
	v := f.view(now)
	bt.held = Held{Rows: bt.rows, Requests: len(bt.entries), Open: f.open == bt, Sealed: bt.sealed, Ahead: true, LastRun: i.lastRun}
	v.Held = &bt.held
	start := f.policy.Decide(v).Start
	bt.held = Held{}
	return start
}

// behind lists the batches that wait for an instance, as candidates to be merged
// with bt.
func (f *former) behind(bt *batch) []Candidate {
	f.candidates = f.candidates[:0]
	for _, next := range f.ready {
		differs := next.sealed || f.match.differs(bt.first(), next.first())
		f.candidates = append(f.candidates, Candidate{Rows: next.rows, Queued: next.first().Queued, Differs: differs})
	}
	return f.candidates
}

// start closes a batch, which begins to run.
func (f *former) start(bt *batch, d Decision, now time.Time) {
	if f.open == bt {
		f.open = nil
	}
	for range d.Take {
		next := f.ready[0]
		for _, e := range next.entries {
			bt.add(e)
		}
		f.drop(next)
	}
	if d.Take > 0 {
		f.advance(now) // there is room for others
	}
	f.countCores()
	f.given = without(f.given, bt)
	bt.started, bt.run.Times = true, infer.Times{Start: now}
	f.peak.pass(f.inFlight, peakMemory*len(f.all))
	if f.learns {
		f.running = append(f.running, Running{Rows: bt.rows, Start: now, End: now.Add(bt.instance.lastRun), at: bt.instance})
		bt.busy = min(len(f.running), len(f.all)) // one that is prepared ahead does not run yet
		f.watchBrief(now)
	}
}

// finish records that a batch has run.
func (f *former) finish(bt *batch, failed bool) {
	i, t := bt.instance, &bt.run.Times
	i.lastRun = t.End.Sub(t.Start)
	i.observe(i.lastRun)
	lastEnd := i.lastEnd
	i.lastEnd = t.End
	bt.done = true
	if !f.learns {
		return
	}
	at := slices.IndexFunc(f.running, func(r Running) bool { return r.at == i })
	f.running = slices.Delete(f.running, at, at+1)
	f.admit()
	f.noteBrief(i, bt.rows)
	f.policy.Observe(Run{
		Rows: bt.rows, Requests: len(bt.entries), Busy: bt.busy, Since: bt.held.Since,
		LastEnd: lastEnd, Start: t.Start, End: t.End, InFlight: f.inFlight, Failed: failed, Batch: &bt.run,
	})
}
