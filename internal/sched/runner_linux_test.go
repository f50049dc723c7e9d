package sched

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
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
	for _, yields := range []bool{false, true} {
		t.Run(fmt.Sprintf("yields=%v", yields), func(t *testing.T) { runOnOneThread(t, yields) })
	}
}

func runOnOneThread(t *testing.T, yields bool) {
	t.Helper()
	const callers, each = 16, 40
	// The last requests may all be one caller's, which has none waiting.
	in := &threads{takes: 200 * time.Microsecond, ran: make(map[int]int), left: (callers - 1) * each}
	d := StartDirect([]backend.Instance{in}, &tally{})
	d.yields, in.waiting = yields, d.Pending
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

// TestAYieldLetsTheOnlyProcessorReadRequests uses the pauser of the system.
func TestAYieldLetsTheOnlyProcessorReadRequests(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var ready, read sync.WaitGroup
	ready.Add(1)
	var got atomic.Int64
	read.Go(func() {
		ready.Done()
		for {
			if n, err := r.Read(make([]byte, 1)); n == 0 || err != nil {
				return
			}
			got.Add(1)
		}
	})
	ready.Wait()
	var y yielder
	defer y.close()
	y.yield() // the reader waits for the poller now
	for i := range int64(20) {
		if _, err := syscall.Write(int(w.Fd()), []byte{1}); err != nil { // without a yield of its own
			t.Fatal(err)
		}
		for range 2 { // with the first the byte is found, and the reader may run after this goroutine
			y.last = time.Time{}
			y.yield()
		}
		if got.Load() != i+1 {
			t.Fatalf("after two yields: got %d bytes read, want %d", got.Load(), i+1)
		}
	}
	w.Close()
	read.Wait()
}
