package inflight

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A client is a holder that moves so many bytes each time it is looked at.
type client struct {
	budget *Budget
	holds  int64
	moved  int64 // at the start
	rate   int64 // bytes per second
	start  time.Time

	evicted atomic.Bool
}

func (c *client) Waiting() (bytes, moved int64) {
	return c.holds, c.moved + c.rate*int64(time.Since(c.start))/int64(time.Second)
}

func (c *client) Evict() {
	c.evicted.Store(true)
	c.budget.Unregister(c)
	c.budget.Release(c.holds)
}

// hold has a client hold bytes of the budget, at a rate.
func hold(t *testing.T, b *Budget, bytes, rate int64) *client {
	t.Helper()
	c := &client{budget: b, holds: bytes, rate: rate, start: time.Now()}
	mustAcquire(t, b, bytes, 0)
	b.Register(c)
	return c
}

func TestSlowHoldersGiveWayToClaimsThatWait(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 0)
		stopped := hold(t, b, 8*mib, 0)
		trickling := hold(t, b, 20*mib, 1000)
		fast := hold(t, b, 24*mib, 20*mib)
		start := time.Now()
		mustAcquire(t, b, 16*mib, 0)
		if got, most := time.Since(start), slowFor+2*reliefTick; got > most {
			t.Errorf("the claim waited %v, want %v at most", got, most)
		}
		if !trickling.evicted.Load() || stopped.evicted.Load() || fast.evicted.Load() {
			t.Errorf("ended: trickling %v, stopped %v, fast %v; want only the larger of the slow ones",
				trickling.evicted.Load(), stopped.evicted.Load(), fast.evicted.Load())
		}
		mustAcquire(t, b, 12*mib, 0)
		if !stopped.evicted.Load() || fast.evicted.Load() {
			t.Errorf("ended: stopped %v, fast %v; want the slow one", stopped.evicted.Load(), fast.evicted.Load())
		}
		wantRefused(t, b.Acquire(24*mib, 0)) // nobody is slow any more
		b.Release(b.Used())
		b.relief.Wait()
	})
}

// TestProvenHoldersMayPauseForLonger has a client that did much business and then
// pauses, as good clients do on a busy machine.
func TestProvenHoldersMayPauseForLonger(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 0)
		proven := hold(t, b, 56*mib, 0)
		proven.moved = provenTimes * proven.holds
		wantRefused(t, b.Acquire(8*mib, 0)) // large: it waits for a second
		if proven.evicted.Load() {
			t.Error("a proven holder was ended when it had paused for a second")
		}
		b.Release(56 * mib)
		b.relief.Wait()
		b.Force(60 * mib)
		start := time.Now()
		mustAcquire(t, b, mib, 0) // it waits for three
		if got, most := time.Since(start), patient*slowFor+2*reliefTick; !proven.evicted.Load() || got > most {
			t.Errorf("ended: %v; the claim waited %v, want %v at most", proven.evicted.Load(), got, most)
		}
		b.Release(b.Used())
		b.relief.Wait()
	})
}

func TestSmallHoldersAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8<<20, 0)
		small := hold(t, b, leastEvicted-1, 0)
		mustAcquire(t, b, 6<<20, 0)
		wantRefused(t, b.Acquire(2<<20, 0))
		if small.evicted.Load() {
			t.Error("a holder of little was ended")
		}
		b.Release(b.Used())
		b.relief.Wait()
	})
}

// TestOveruseIsRelievedAtOnce has answers, which are counted whether they fit or
// not, take more than there is. Their holders were watched before the first
// claim has to wait.
func TestOveruseIsRelievedAtOnce(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 0)
		var stopped []*client
		for range 12 {
			c := &client{budget: b, holds: 8 * mib, start: time.Now()}
			b.Register(c)
			b.Force(c.holds)
			stopped = append(stopped, c)
		}
		time.Sleep(2 * slowFor)
		for _, c := range stopped {
			if c.evicted.Load() {
				t.Error("a holder was ended while no claim waited")
			}
		}
		start := time.Now()
		mustAcquire(t, b, 1<<10, 0)
		if got := time.Since(start); got > 2*reliefTick {
			t.Errorf("a small claim waited %v, want %v at most", got, 2*reliefTick)
		}
		b.Release(b.Used())
		b.relief.Wait()
	})
}
