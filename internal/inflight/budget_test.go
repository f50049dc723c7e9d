package inflight

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/status"
)

func mustAcquire(t *testing.T, b *Budget, n, held int64) {
	t.Helper()
	if err := b.Acquire(n, held); err != nil {
		t.Fatalf("acquire %d bytes with %d held: got %v, want none", n, held, err)
	}
}

func wantRefused(t *testing.T, err error) {
	t.Helper()
	if status.CodeOf(err) != status.ResourceExhausted || err == nil {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
}

func TestClaimThatDoesNotFitWaitsAndIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1<<20, 0)
		mustAcquire(t, b, 800<<10, 0)
		start := time.Now()
		wantRefused(t, b.Acquire(200<<10, 0))
		if got := time.Since(start); got != DefaultWait {
			t.Errorf("refused after %v, want %v", got, DefaultWait)
		}
		if b.Used() != 800<<10 || b.Refused() != 1 {
			t.Errorf("got %d bytes used and %d claims refused, want %d and 1", b.Used(), b.Refused(), 800<<10)
		}
	})
}

func TestClaimGetsWhatIsReleasedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1<<20, 0)
		mustAcquire(t, b, 800<<10, 0)
		got := make(chan error, 1)
		go func() { got <- b.Acquire(200<<10, 0) }()
		synctest.Wait()
		b.Release(400 << 10)
		if err := <-got; err != nil {
			t.Errorf("got %v, want none", err)
		}
		if want := int64(600 << 10); b.Used() != want {
			t.Errorf("got %d bytes used, want %d", b.Used(), want)
		}
	})
}

func TestSmallClaimsFitWhenLargeOnesHaveFilledTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8<<20, 0)
		mustAcquire(t, b, 7<<20-1, 0)
		wantRefused(t, b.Acquire(Small+1, 0))
		mustAcquire(t, b, Small, 0)
		wantRefused(t, b.Acquire(1, Small)) // no longer small
	})
}

func TestSmallClaimsAreServedBeforeLargeOnesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8<<20, 0)
		mustAcquire(t, b, 8<<20-1<<10, Small-8<<20) // small by what it is said to hold: the budget is full
		order := make(chan string, 2)
		go func() {
			_ = b.Acquire(1<<20, 0)
			order <- "large"
		}()
		synctest.Wait()
		go func() {
			_ = b.Acquire(32<<10, 0)
			order <- "small"
		}()
		synctest.Wait()
		b.Release(64 << 10)
		if first := <-order; first != "small" {
			t.Errorf("got the %s claim served first, want the small one", first)
		}
		b.Release(4 << 20)
		<-order
	})
}

func TestClaimThatCanNeverFitIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1<<20, 0)
		start := time.Now()
		wantRefused(t, b.Acquire(1<<20, 0))
		wantRefused(t, b.Check(2<<20))
		if got := time.Since(start); got != 0 {
			t.Errorf("refused after %v, want at once", got)
		}
	})
}

func TestNilBudgetHasNoLimit(t *testing.T) {
	var b *Budget
	mustAcquire(t, b, 1<<40, 0)
	c := b.Claim()
	if err := c.Acquire(1 << 40); err != nil {
		t.Error(err)
	}
	c.Release()
	b.Release(1 << 40)
}

func TestBudgetIsEmptyAfterManyRacedClaims(t *testing.T) {
	b := New(4<<20, time.Millisecond)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 500 {
				c := b.Claim()
				if c.Acquire(int64((i+1)*(j%70)<<10)) == nil && j%3 == 0 {
					_ = c.Acquire(100 << 10)
				}
				c.Release()
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 || b.waiting() || len(b.queue) != 0 {
		t.Errorf("got %d bytes used and %d claims waiting, want none", b.Used(), len(b.queue))
	}
}

func TestAcquireAndReleaseDoNotAllocate(t *testing.T) {
	b := New(1<<30, 0)
	p := NewPool(b)
	p.Put(p.Get(3000))
	if n := testing.AllocsPerRun(1000, func() {
		c := b.Claim()
		_ = c.Acquire(4096)
		buf, _ := p.Claim(3000, 0)
		p.Put(buf)
		c.Release()
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

func TestPoolCountsWhatItLends(t *testing.T) {
	b := New(1<<30, 0)
	p := NewPool(b)
	for _, n := range []int{0, 1, 2048, 2049, 1 << 24, 1<<24 + 1} {
		buf := p.Get(n)
		if len(*buf) != n || b.Used() != int64(cap(*buf)) {
			t.Errorf("buffer of %d bytes: got length %d, capacity %d and %d bytes used, want the same", n, len(*buf), cap(*buf), b.Used())
		}
		p.Put(buf)
		if b.Used() != 0 {
			t.Errorf("buffer of %d bytes: got %d bytes used after Put, want none", n, b.Used())
		}
	}
}

func TestReuseMakesNoMemory(t *testing.T) {
	b := New(1<<30, 0)
	p := NewPool(b)
	for p.Reuse(5<<20, 0) != nil { // what other tests left
	}
	b.Release(b.Used())
	p.Put(p.Get(5 << 20))
	tight := NewPool(New(8<<20, 0)) // 8 MiB is more than a large request may have of it
	if buf := tight.Reuse(5<<20, 0); buf != nil {
		t.Error("got a buffer that does not fit the budget")
	}
	if p.Reuse(17<<20, 0) != nil {
		t.Error("got a buffer of a size that is not kept")
	}
}

func TestClaimsThatAreNotLargeWaitLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64<<20, time.Second)
		b.Force(64 << 20)
		for _, c := range []struct {
			n    int64
			want time.Duration
		}{{1 << 10, patient * time.Second}, {1 << 20, patient * time.Second}, {1<<20 + 1, time.Second}} {
			begin := time.Now()
			wantRefused(t, b.Acquire(c.n, 0))
			if got := time.Since(begin); got != c.want {
				t.Errorf("a claim of %d bytes waited %v, want %v", c.n, got, c.want)
			}
		}
	})
}

func TestMediumClaimsFitWhenLargeOnesHaveFilledTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64<<20, 0)
		mustAcquire(t, b, 56<<20, 0)
		wantRefused(t, b.Acquire(1, 1<<20)) // large
		for range 4 {
			mustAcquire(t, b, 1<<20, 0)
		}
		wantRefused(t, b.Acquire(1<<20, 0)) // the rest is for small ones
		mustAcquire(t, b, Small, 0)
	})
}

func TestClaimsThatWaitAreServedByWhatTheirRequestsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64<<20, 0)
		b.Force(64 << 20)
		order := make(chan string, 4)
		for _, c := range []struct {
			name    string
			n, held int64
		}{{"fourth", 1 << 10, 30 << 20}, {"second", 1 << 20, 1 << 20}, {"third", 1 << 10, 2<<20 - 1<<10}, {"first", 1 << 10, 0}} {
			go func() {
				if b.Acquire(c.n, c.held) != nil {
					t.Errorf("the %s claim was refused", c.name)
				}
				order <- c.name
			}()
			synctest.Wait()
		}
		b.Release(1 << 10)
		if got := <-order; got != "first" {
			t.Errorf("got the %s claim, want the first", got)
		}
		b.Release(8<<20 - 1<<10)
		synctest.Wait()
		if len(order) != 0 {
			t.Error("a claim was granted that does not fit")
		}
		for _, want := range []struct {
			name string
			n    int64
		}{{"second", 1<<20 + 1<<10}, {"third", 1 << 10}, {"fourth", 1 << 10}} {
			b.Release(want.n)
			if got := <-order; got != want.name {
				t.Errorf("got the %s claim, want the %s", got, want.name)
			}
			synctest.Wait()
			if len(order) != 0 {
				t.Error("a claim was granted that does not fit")
			}
		}
	})
}
