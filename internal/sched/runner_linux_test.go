package sched

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// threads is an instance that counts the threads that it runs on.
type threads struct {
	takes time.Duration
	ran   map[int]int // runs by thread; one run at a time
}

func (t *threads) Run(*infer.Batch) error {
	t.ran[syscall.Gettid()]++
	for start := time.Now(); time.Since(start) < t.takes; {
	}
	return nil
}

func (t *threads) Close() error      { return nil }
func (t *threads) ComputesOnThread() {}

func TestRequestsThatWaitForALongRunAllRunOnOneThread(t *testing.T) {
	const callers, each = 16, 40
	in := &threads{takes: 200 * time.Microsecond, ran: make(map[int]int)}
	d := StartDirect([]backend.Instance{in}, &tally{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if err := d.Do(t.Context(), request("")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	d.Close()
	all, most := 0, 0
	for _, n := range in.ran {
		all += n
		most = max(most, n)
	}
	// A caller that finds the instance idle runs it itself: the first, and whoever
	// comes when the others are late.
	if all != callers*each || most < all*3/4 {
		t.Errorf("got %d runs, at most %d of them on one thread (%v), want %d and three quarters", all, most, in.ran, callers*each)
	}
}
