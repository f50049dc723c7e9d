package sched

import (
	"runtime"
	"sync"
	"time"

	"shoal/internal/backend"
)

// A runner is the goroutine of an instance, with its own system thread. While
// requests wait it runs one after the other, so that the model's weights and
// the library's per-thread memory stay in the caches of one core.
type runner struct {
	next chan any // buffered 1: the next waiter or batch
	stop func()   // ends the goroutine and waits for it; may be called several times
}

// handOver gives a waiter or a batch to the instance's runner, which starts with
// the first. The runner must have nothing else to do.
func (p *pool) handOver(i *instance, what any) {
	if i.runner == nil {
		i.runner = startRunner(func(what any) { p.serve(i, what) }, p.yields)
	}
	i.runner.next <- what
}

// startRunner starts the goroutine, which calls run for each that it gets, and yields
// between them or does not.
func startRunner(run func(any), yields bool) *runner {
	r := &runner{next: make(chan any, 1)}
	var ended sync.WaitGroup
	ended.Go(func() {
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		var others yielder
		defer others.close()
		for w := range r.next {
			run(w)
			if yields {
				others.yield()
			}
		}
	})
	r.stop = sync.OnceFunc(func() {
		close(r.next)
		ended.Wait()
	})
	return r
}

// lockOnThread locks the mutex for a runner. If a runner's goroutine blocks, its thread sleeps,
// and to wake it takes a tenth of a millisecond while every core computes. The mutex is held
// for some microseconds, often by another runner whose batch began and ended at the same time.
func (p *pool) lockOnThread() {
	if p.mu.TryLock() {
		return
	}
	if runtime.NumCPU() > 1 {
		for start := time.Now(); time.Since(start) < longestTry; {
			if p.mu.TryLock() {
				return
			}
		}
	}
	p.mu.Lock()
}

// longestTry is for how long a runner tries to lock the mutex before it blocks.
const longestTry = 30 * time.Microsecond

// A runner takes over when runs take at least longRun, until they take less
// than briefRun. Waking the goroutine and the thread costs some microseconds
// per request; staying on one thread saves up to a third of the run.
const (
	longRun  = 60 * time.Microsecond
	briefRun = 40 * time.Microsecond
)

// observe learns how long the instance's runs take. A run that took much longer
// than the others counts little: the system probably stopped its thread. The
// goroutine that runs the instance calls it.
func (i *instance) observe(took time.Duration) {
	if i.runTime == 0 {
		i.runTime = took
	}
	i.runTime += (min(took, 2*i.runTime+time.Microsecond) - i.runTime) / 16
	switch {
	case i.runTime >= longRun:
		i.long = true
	case i.runTime < briefRun:
		i.long = false
	}
}

// ownsThread reports whether the instance's runner should run waiting requests.
// It should not when a request may leave while it waits for resources, nor when
// the instance only waits for another process.
func (i *instance) ownsThread() bool {
	if i.ticket != nil || !i.long {
		return false
	}
	_, ok := i.backend.(backend.OnThread)
	return ok
}
