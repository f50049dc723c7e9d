package sched

import (
	"slices"
	"time"
)

// park keeps a batch that an instance has and its runner is to lead. Whoever changes
// something asks the policy about it, and only when the batch starts is the runner's
// thread woken: it would take a core from those who bring the rest of the batch.
func (f *former) park(bt *batch) { f.parked = append(f.parked, bt) }

// lookAtParked asks the policy about a parked batch, if that is due for one. It reports
// whether it was: then there may be others, and requests to form batches of.
func (f *former) lookAtParked(now time.Time) bool {
	at := slices.IndexFunc(f.parked, func(bt *batch) bool { return !now.Before(bt.until) })
	if at < 0 {
		for _, bt := range f.parked {
			f.armWait(bt.until, bt.wait, now)
		}
		return false
	}
	bt := f.parked[at]
	f.parked = without(f.parked, bt)
	f.exchange(bt)
	f.lookAt(bt, now)
	if bt.started || bt.starts {
		if bt.held.Looks > 1 && len(f.parked) == 0 && f.armed.Sub(now) <= bt.instance.lastRun { // it would interrupt the run
			f.disarm()
		}
		f.unpark(bt)
		return true
	}
	bt.until = now.Add(max(bt.wait, 1))
	f.park(bt)
	return true
}

// exchange gives a parked batch the instance that became idle last, if that is another:
// its memory is still in a core's caches, and its thread may not yet sleep. On two cores
// this is worth five percent.
func (f *former) exchange(bt *batch) {
	first, n := bt.instance, len(f.idle)-1
	if n < 0 || first.removed || first.unavailable || first.turns != nil {
		return
	}
	last := f.idle[n]
	if !last.lastEnd.After(first.lastEnd) || !last.ownsThread() || last.turns != nil {
		return
	}
	first.batches--
	last.batches++
	bt.instance = last
	at := slices.IndexFunc(f.idle, func(i *instance) bool { return i.lastEnd.After(first.lastEnd) })
	f.idle = slices.Insert(f.idle[:n], at, first) // in the order in which they became idle
}

// lateLook is how many times as late a parked batch is looked at if a batch that was
// expected to end before does not.
const lateLook = 8

// armWait arms the timer for a batch, or for requests that are to be one, that waits so long
// until t. Whoever ends a batch looks at it too, so the timer is set for later, and seldom, if
// one is expected to end before: on a virtual machine each setting costs microseconds.
func (f *former) armWait(t time.Time, wait time.Duration, now time.Time) {
	if slices.ContainsFunc(f.running, func(r Running) bool { return r.End.After(now) && r.End.Before(t) }) {
		t = t.Add((lateLook - 1) * wait) // the same each time, or the timer would be set each time
	}
	f.arm(t, now)
}
