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
			f.arm(bt.until, now)
		}
		return false
	}
	bt := f.parked[at]
	f.parked = without(f.parked, bt)
	f.lookAt(bt, now)
	if bt.started || bt.starts {
		if bt.held.Looks > 1 && len(f.parked) == 0 {
			f.disarm()
		}
		f.unpark(bt)
		return true
	}
	bt.until = now.Add(max(bt.wait, 1))
	f.park(bt)
	return true
}
