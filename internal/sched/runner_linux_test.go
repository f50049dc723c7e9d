package sched

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// threads is an instance that counts the threads that it runs on. A run takes a
// while, and lasts until another request waits, except for the last ones.
type threads struct {
	takes   time.Duration
	ran     map[int]int // runs by thread; one run at a time
	left    int         // runs that wait for another request
	waiting func() int
}

func (t *threads) Run(*infer.Batch) error {
	t.ran[syscall.Gettid()]++
	t.left--
	for start := time.Now(); time.Since(start) < t.takes; {
	}
	for t.left >= 0 && t.waiting() == 0 {
		runtime.Gosched()
	}
	return nil
}

func (t *threads) Close() error      { return nil }
func (t *threads) ComputesOnThread() {}

func TestRequestsThatWaitForALongRunAllRunOnOneThread(t *testing.T) {
	const callers, each = 16, 40
	// The last requests may all be one caller's, which has none waiting.
	in := &threads{takes: 200 * time.Microsecond, ran: make(map[int]int), left: (callers - 1) * each}
	d := StartDirect([]backend.Instance{in}, &tally{})
	in.waiting = d.Pending
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
	// A caller that finds the instance idle runs it itself: the first, and some of
	// the last.
	if want := (callers-1)*each - 1; all != callers*each || most < want {
		t.Errorf("got %d runs, at most %d of them on one thread (%v), want %d and %d or more", all, most, in.ran, callers*each, want)
	}
}
