package sched

import (
	"slices"
	"time"

	"shoal/internal/backend"
)

// onThreads reports whether all instances compute on the threads of their callers.
func onThreads(instances []backend.Instance) bool {
	return !slices.ContainsFunc(instances, func(in backend.Instance) bool {
		_, ok := plainInstance(in).(backend.OnThread)
		return !ok
	})
}

// usable returns how many instances may run at a time.
func (f *former) usable() int {
	most := len(f.all)
	if f.cores != nil {
		most = min(most, f.mostBusy)
	}
	if f.fewAtATime() {
		most = min(most, f.fewBrief())
	}
	return most
}

// vacant returns how many of the idle instances may get a batch.
func (f *former) vacant() int { return max(0, len(f.idle)-(len(f.all)-f.usable())) }

// askCores is after how many batches the number of cores is asked for again: the
// limits of a container may change.
const askCores = 1024

// countCores is called when a batch starts.
func (f *former) countCores() {
	if f.cores == nil {
		return
	}
	if f.untilCores--; f.untilCores < 0 {
		f.mostBusy, f.untilCores = max(1, f.cores()), askCores
	}
}

// Where runs are brief, most of what a batch costs is to form it and to wake those who
// wait for it. With so many callers for each core that all cores are busy, fewer and
// larger batches answer more: then one instance runs at a time for each coresForBrief
// cores. With fewer callers another instance answers sooner.
const (
	manyCallers   = 3
	coresForBrief = 8
)

// fewAtATime reports whether few instances run at a time: runs are brief and callers many.
func (f *former) fewAtATime() bool { return f.brief && f.peak.most() >= manyCallers*f.mostBusy }

// fewBrief returns how many instances with brief runs run at a time for many callers.
func (f *former) fewBrief() int { return max(1, f.mostBusy/coresForBrief) }

// briefLimit is how long a batch runs before other instances may have batches although
// runs are brief.
const briefLimit = 5 * time.Millisecond

// noteBrief notes, when a batch of an instance ends, whether runs are brief. They are
// not if more requests wait than fit into full batches.
func (f *former) noteBrief(i *instance, rows int) {
	switch {
	case f.cores == nil || len(f.all) == 1:
	case i.runTime >= longRun || rows >= f.maxRows && f.queue.rows() >= f.maxRows:
		f.brief = false
	case i.runTime*time.Duration(f.usable())/time.Duration(f.fewBrief()) < briefRun: // also in larger batches
		f.brief = true
	}
}

// watchBrief lets other instances have batches if one runs for long after all. It
// reports whether they may from now on.
func (f *former) watchBrief(now time.Time) bool {
	if !f.fewAtATime() || len(f.running) == 0 {
		return false
	}
	limit := f.running[0].Start.Add(briefLimit)
	if now.Before(limit) {
		f.arm(limit, now)
		return false
	}
	f.brief = false
	return true
}
