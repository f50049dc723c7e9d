package httpserver

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestTurnsEnd: however many goroutines give their threads away at once, all of
// them go on.
func TestTurnsEnd(t *testing.T) {
	var threads rotation
	var wg sync.WaitGroup
	var ended atomic.Int32
	for range 4 * maxWaiting {
		wg.Go(func() {
			for range 50 {
				threads.turn()
			}
			ended.Add(1)
		})
	}
	wg.Wait()
	if got := ended.Load(); got != 4*maxWaiting || threads.waiting.Load() != 0 {
		t.Errorf("got %d that ended and %d that wait, want %d and 0", got, threads.waiting.Load(), 4*maxWaiting)
	}
}
