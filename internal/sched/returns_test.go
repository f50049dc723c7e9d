package sched

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"shoal/internal/infer"
)

// TestTimesFadeAsIfAllCountsWereReduced compares weights with the plain way. Counts
// that fade forever become numbers that the processor computes with slowly, so those
// must become 0.
func TestTimesFadeAsIfAllCountsWereReduced(t *testing.T) {
	var got times
	var want [returnSizes]float64
	total := 0.0
	r := rand.New(rand.NewPCG(1, 2))
	for batch := range 20_000 {
		got.fade()
		for i := range want {
			want[i] *= returnMemory
		}
		total *= returnMemory
		took := time.Duration(1+r.IntN(100)) * time.Microsecond
		if batch < 100 {
			took = time.Second // never again
		}
		got.add(took)
		want[returnSize(took)]++
		total++
		if math.Abs(float64(got.number())-total) > 0.01*total {
			t.Fatalf("batch %d: got %g in all, want %g", batch, got.number(), total)
		}
	}
	for i := range want {
		c := got.counts[i]
		if math.Abs(float64(c/got.weight)-want[i]) > 0.01 {
			t.Errorf("size %d: got %g, want %g", i, c/got.weight, want[i])
		}
		if c != 0 && c < 1e-30 {
			t.Errorf("size %d: got %g, want 0", i, c)
		}
	}
	if got.counts[returnSize(time.Second)] != 0 {
		t.Errorf("got %g of what was not seen for 19,900 batches, want 0", got.counts[returnSize(time.Second)])
	}
}

func TestReturnsHaveFourClassesForEachDoubling(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := time.Duration(math.Exp2(40 * r.Float64()))
		want := 0
		if d > time.Microsecond {
			want = min(returnSizes-1, int(4*math.Log2(float64(d)/1e3))+1)
		}
		if got := returnSize(d); got != want {
			t.Fatalf("%v: got class %d, want %d", d, got, want)
		}
	}
}

// TestOnlyWaitsTellHowLongCallersAreAwaited: a request that happens to come just
// before a batch starts, long after its answer, is no caller that an instance waited
// for.
func TestOnlyWaitsTellHowLongCallersAreAwaited(t *testing.T) {
	a := NewAuto(64)
	now := epoch
	batch := func(answered time.Time, wait time.Duration) {
		q := &infer.Request{Queued: answered.Add(max(wait, 8*ms))}
		since := q.Queued.Add(-wait)
		start := q.Queued.Add(time.Microsecond)
		now = start.Add(10 * ms)
		a.Observe(Run{Rows: 1, Requests: 1, Busy: 1, Since: since, Start: start, End: now, Batch: &infer.Batch{Requests: []*infer.Request{q}}})
	}
	for range 32 {
		batch(now, 0)
	}
	if n := a.returns.awaited.number(); n != 0 {
		t.Errorf("got %v that were awaited, want none", n)
	}
	for range 32 {
		batch(now, ms)
	}
	if n := a.returns.awaited.number(); n < 8 || a.returns.age > 1 {
		t.Errorf("got %v that were awaited, the last %d batches ago, want most of 32 and the last batch", n, a.returns.age)
	}
}

// TestReturnsOfThoseWhoWaitLong: with many callers and small batches, a request is
// seen long after it came. It still counts as the return of the answer before it.
func TestReturnsOfThoseWhoWaitLong(t *testing.T) {
	for _, callers := range []int{1, 64, 200} {
		var r returns
		var queue []*infer.Request
		now := epoch
		for range callers {
			queue = append(queue, &infer.Request{Queued: now})
		}
		for range 2000 { // batches of one
			now = now.Add(ms)
			r.observe(queue[:1], now, now, false, 4*ms)
			queue = append(queue[1:], &infer.Request{Queued: now.Add(300 * us)})
			if callers == 1 {
				now = now.Add(300 * us)
			}
		}
		if r.back < 0.9 {
			t.Errorf("%d callers: got a share of %v that return, want nearly all", callers, r.back)
		}
		if got := r.all.within(0.95); got < 300*us || got > 360*us {
			t.Errorf("%d callers: got a return within %v, want 300us or little more", callers, got)
		}
	}
}

// TestCallersThatPauseAreStillCallers: none of 64 sends again for a second.
func TestCallersThatPauseAreStillCallers(t *testing.T) {
	var r returns
	now := epoch
	batch := func(after time.Duration) {
		var all []*infer.Request
		for range 64 {
			all = append(all, &infer.Request{Queued: now.Add(after)})
		}
		now = now.Add(after + 10*ms)
		r.observe(all, now, now, false, 40*ms)
	}
	for range 20 {
		batch(300 * us)
	}
	batch(time.Second)
	if r.back < 0.8 {
		t.Errorf("got a share of %v that return, want most after one pause", r.back)
	}
	for range 20 {
		batch(time.Second)
	}
	if r.back > 0.5 {
		t.Errorf("got a share of %v that return, want less than half if they always pause", r.back)
	}
}
