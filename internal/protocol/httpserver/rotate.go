package httpserver

import (
	"runtime"
	"sync/atomic"
)

// A rotation changes the system's thread behind Go's processors from time to
// time. The system shares a core between threads, not between programs, and makes
// a thread that never sleeps wait for a whole tick (4 ms) once it has had its
// share. Go's threads go from one brief request to the next without a sleep, so on
// a core that a busy client uses too, every hundredth request waited that long.
// Threads that take turns stay below their shares.
type rotation struct {
	// waiting is how many threads sleep until their goroutines run again.
	waiting atomic.Int32
}

const (
	// rotateEvery is the number of requests on a connection between two turns: a
	// turn costs some 10 us.
	rotateEvery = 32
	// maxWaiting bounds the threads that sleep.
	maxWaiting = 16
)

// turn lets another thread run the goroutines of this one, and returns when the
// system runs this one again.
func (t *rotation) turn() {
	if t.waiting.Add(1) <= maxWaiting {
		// A goroutine that is bound to its thread waits with it, and Go continues
		// with another thread.
		runtime.LockOSThread()
		runtime.Gosched()
		runtime.UnlockOSThread()
	}
	t.waiting.Add(-1)
}
