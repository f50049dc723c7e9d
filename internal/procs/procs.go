// Package procs keeps Go's scheduler going while goroutines are in native code.
//
// A goroutine that calls native code keeps its processor (one of GOMAXPROCS)
// until the runtime's monitor takes it away. The monitor looks every 20 us at
// best and every 10 ms at worst. When as many models run as there are
// processors, nobody reads sockets meanwhile. So there is one processor more for
// each long native call. Calls of a few microseconds do not count: more threads
// than cores make them slower.
package procs

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Long is from where on a native call is worth a processor.
const Long = 200 * time.Microsecond

// review is how often the number of processors is lowered to what was needed. It
// is long because each change stops all goroutines for a moment, and Go's runtime
// keeps free memory of the processors that it removes (several megabytes when
// they came and went every few seconds).
const review = time.Minute

// A Counter counts native calls and sets the number of processors.
type Counter struct {
	running atomic.Int32
	most    atomic.Int32 // that ran at a time since the last review
	extra   atomic.Int32 // processors beyond one for each core

	mu    sync.Mutex
	cores int
	timer *time.Timer
	set   func(extra int) (cores int)
}

// Native counts the native calls of this process.
var Native = newCounter()

func newCounter() *Counter {
	c := &Counter{cores: runtime.GOMAXPROCS(0), set: setProcessors}
	if os.Getenv("GOMAXPROCS") != "" {
		c.set = nil // the user has chosen
	}
	return c
}

// setProcessors gives the process one processor for each core that it may use,
// and so many more.
func setProcessors(extra int) (cores int) {
	runtime.SetDefaultGOMAXPROCS() // follows the limits of the container
	cores = runtime.GOMAXPROCS(0)
	if extra > 0 {
		runtime.GOMAXPROCS(cores + extra)
	}
	return cores
}

// Begin counts a long call that begins.
func (c *Counter) Begin() {
	n := c.running.Add(1)
	if n > c.most.Load() {
		c.raise(n)
	}
}

// End counts a long call that ends.
func (c *Counter) End() { c.running.Add(-1) }

// Cores returns how many cores the process may use.
func (c *Counter) Cores() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra.Load() == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return c.cores
}

func (c *Counter) raise(n int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most.Store(max(n, c.most.Load()))
	// Beyond two processors for each core the threads only wait for each other.
	n = min(n, int32(c.cores))
	if c.set == nil || n <= c.extra.Load() {
		return
	}
	c.extra.Store(n)
	c.cores = c.set(int(n))
	if c.timer == nil {
		c.timer = time.AfterFunc(review, c.review)
	} else {
		c.timer.Reset(review)
	}
}

// review lowers the number of processors when fewer calls ran at a time of late.
func (c *Counter) review() {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(c.most.Swap(c.running.Load()), int32(c.cores))
	if n < c.extra.Load() {
		c.extra.Store(n)
		c.cores = c.set(int(n))
	}
	if n > 0 {
		c.timer.Reset(review)
	}
}
