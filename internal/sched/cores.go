package sched

import (
	"slices"

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
	if f.cores == nil {
		return len(f.all)
	}
	return min(len(f.all), f.mostBusy)
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
