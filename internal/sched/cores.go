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
	switch {
	case f.cores == nil:
		return len(f.all)
	case f.brief:
		return min(len(f.all), 1)
	}
	return min(len(f.all), f.mostBusy)
}

// tinyRun is less time than it takes to wake another thread. Instances with shorter runs
// take turns until their runs take briefRun: one at a time has larger batches.
const tinyRun = 10 * time.Microsecond

// observeRun learns from a batch that has run how many instances may run at a time.
func (f *former) observeRun(i *instance) {
	f.brief = i.runTime < tinyRun || f.brief && i.runTime < briefRun
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
