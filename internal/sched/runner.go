package sched

import (
	"runtime"
	"sync"
	"time"

	"shoal/internal/backend"
)

// A runner is the goroutine of an instance, with a thread of the system to itself.
// While requests wait it runs one after the other, so that the model's weights and
// the memory that its library keeps for each thread stay in the caches of one core.
type runner struct {
	next chan *waiter // buffered 1: whom it runs next
	stop func()       // ends the goroutine and waits for it; for several callers
}

// startRunner starts the goroutine, which calls run for each waiter that it is given.
func startRunner(run func(*waiter)) *runner {
	r := &runner{next: make(chan *waiter, 1)}
	var ended sync.WaitGroup
	ended.Go(func() {
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		for w := range r.next {
			run(w)
		}
	})
	r.stop = sync.OnceFunc(func() {
		close(r.next)
		ended.Wait()
	})
	return r
}

// A runner takes over when runs take handOver, until they take less than takeBack.
// Waking goroutine and thread costs some microseconds a request; staying on one
// thread saves up to a third of the run.
const (
	handOver = 60 * time.Microsecond
	takeBack = 40 * time.Microsecond
)

// observe learns how long the instance's runs take. A run that took much longer
// than the others counts little: the system has stopped its thread meanwhile.
// Whoever runs the instance calls it.
func (i *instance) observe(took time.Duration) {
	if i.runTime == 0 {
		i.runTime = took
	}
	i.runTime += (min(took, 2*i.runTime+time.Microsecond) - i.runTime) / 16
	switch {
	case i.runTime >= handOver:
		i.long = true
	case i.runTime < takeBack:
		i.long = false
	}
}

// ownsThread reports whether the instance's runner is to run the requests that
// wait. It is not when a request can leave while it waits for resources, nor
// when the instance only waits for another process.
func (i *instance) ownsThread() bool {
	if i.ticket != nil || !i.long {
		return false
	}
	_, ok := i.backend.(backend.OnThread)
	return ok
}
