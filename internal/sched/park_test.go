package sched

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// holding is a policy that makes each held batch wait for one more row, or for as many as
// are named, for as long as it says.
type holding struct {
	left []time.Duration
	more int
}

func (w *holding) Needs() Needs { return Needs{Runs: true} }
func (w *holding) Observe(Run)  {}

func (w *holding) Decide(v *View) Decision {
	switch {
	case v.Held == nil:
		return Decision{Fill: 1 + max(1, w.more)}
	case v.Held.Looks > 0:
		return Decision{Start: true}
	}
	wait := w.left[0]
	w.left = w.left[1:]
	return Decision{Start: wait == 0, Wait: wait, More: max(1, w.more)}
}

// parkedTest starts a batcher with that policy whose runners lead, and returns it with a
// function that sends a request for each of the times, waits for the answers and closes
// the batcher.
func parkedTest(t *testing.T, p Policy, instances ...backend.Instance) (b *Batcher, send func(at ...time.Duration)) {
	t.Helper()
	cfg := BatcherConfig{Policy: p, Levels: []QueuePolicy{{}}, Signature: fixedSignature(8)}
	b, err := startBatcher(cfg, instances, &tally{}, newRuntimeTimer, func() (pauser, error) { return make(chanPauser, 1), nil })
	if err != nil {
		t.Fatal(err)
	}
	return b, func(at ...time.Duration) {
		var wg sync.WaitGroup
		for n, after := range at {
			r := request(strconv.Itoa(n))
			r.Rows = 1
			wg.Go(func() {
				time.Sleep(after)
				if err := b.Do(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b.Close()
	}
}

// The timer is set for the second batch, goes off while the third waits, and must be
// set again for it.
func TestAParkedBatchStartsWhenItsWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		_, send := parkedTest(t, &holding{left: []time.Duration{0, 8 * ms, 8 * ms}}, computer{&recorder{takes: 5 * ms, log: log}})
		send(0, ms, 6*ms, 7*ms)
		if diff := cmp.Diff([]string{"0s: 0", "6ms: 1 2", "19ms: 3"}, log.all()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}

// The third request waits with the instance that was idle first. When the fourth comes,
// the other has ended its batch after that.
func TestAParkedBatchRunsOnTheInstanceThatWasBusyLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, last := &runLog{start: time.Now()}, &runLog{start: time.Now()}
		_, send := parkedTest(t, &holding{left: []time.Duration{0, 0, 8 * ms}},
			computer{&recorder{takes: 3 * ms, log: first}}, computer{&recorder{takes: 5 * ms, log: last}})
		send(0, ms, 2*ms, 6*ms)
		if diff := cmp.Diff([]string{"1ms: 1"}, first.all()); diff != "" {
			t.Errorf("runs of the instance that was idle first (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"0s: 0", "6ms: 2 3"}, last.all()); diff != "" {
			t.Errorf("runs of the other (-want +got):\n%s", diff)
		}
	})
}

// As above, but the instance that was idle first is removed while the batch waits with it.
func TestAnInstanceIsRemovedWhileItsBatchIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		first := computer{&recorder{takes: 3 * ms, log: log}}
		b, send := parkedTest(t, &holding{left: []time.Duration{0, 0, 8 * ms}}, first, computer{&recorder{takes: 5 * ms, log: log}})
		removed := make(chan time.Duration)
		go func() {
			time.Sleep(5*ms + ms/2) // of the bubble's time, when the batch waits
			b.Remove(first)
			removed <- time.Since(log.start)
		}()
		go send(0, ms, 2*ms, 6*ms)
		if at := <-removed; at != 9*ms {
			t.Errorf("the instance was removed at %v, want 9ms, when its batch has run", at)
		}
		if diff := cmp.Diff([]string{"0s: 0", "1ms: 1", "6ms: 2 3"}, log.all()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}

// The last request may wait for 8 ms, within which the batch before it should end. That
// one takes much longer than those before.
func TestAParkedBatchStartsAlsoIfAnotherDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		slow := &slowing{recorder: &recorder{takes: 2 * ms, log: log}, from: 10 * ms}
		_, send := parkedTest(t, &holding{left: []time.Duration{0, 0, 0, 0, 8 * ms}}, computer{&recorder{takes: 3 * ms, log: log}}, slow)
		send(0, ms/10, ms/5, ms/4, 10*ms, 11*ms)
		want := []string{"0s: 0", "100µs: 1", "2ms: 2 3", "10ms: 4", (11*ms + lateLook*8*ms).String() + ": 5"}
		if diff := cmp.Diff(want, log.all()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}

// As above, but two more requests join the last batch: the timer is not set for earlier
// at each of them.
func TestRequestsThatJoinAParkedBatchDoNotSetTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		slow := &slowing{recorder: &recorder{takes: 2 * ms, log: log}, from: 10 * ms}
		_, send := parkedTest(t, &holding{[]time.Duration{0, 0, 0, 0, 8 * ms}, 3}, computer{&recorder{takes: 3 * ms, log: log}}, slow)
		send(0, ms/10, ms/5, ms/4, 10*ms, 11*ms, 11*ms+ms/5, 11*ms+ms/2)
		want := []string{"0s: 0", "100µs: 1", "2ms: 2 3", "10ms: 4", (11*ms + lateLook*8*ms).String() + ": 5 6 7"}
		if diff := cmp.Diff(want, log.all()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}

// slowing takes much longer for the batches that begin after a time.
type slowing struct {
	*recorder
	from time.Duration
}

func (*slowing) ComputesOnThread() {}

func (s *slowing) Run(b *infer.Batch) error {
	if time.Since(s.log.start) < s.from {
		return s.recorder.Run(b)
	}
	slow := recorder{takes: 100 * s.takes, log: s.log}
	return slow.Run(b)
}

// expecting is a policy that lets the first request wait for two others.
type expecting struct{ decisions int }

func (e *expecting) Needs() Needs { return Needs{Runs: true} }
func (e *expecting) Observe(Run)  {}

func (e *expecting) Decide(v *View) Decision {
	if e.decisions++; v.Held == nil && v.Rows+v.Open == 0 {
		return Decision{Wait: 8 * ms, More: 3}
	}
	if v.Held != nil {
		return Decision{Start: true}
	}
	return Decision{Fill: 8}
}

// The first two requests show that there are callers and that runs are long. The second
// batch begins with its third request, the third when the first has waited 8 ms.
func TestExpectedRequestsStayInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		policy := new(expecting)
		b, send := parkedTest(t, policy, computer{&recorder{takes: 5 * ms, log: log}})
		made := make(chan int, 1)
		go func() {
			decisions := func() int {
				b.mu.Lock()
				defer b.mu.Unlock()
				return policy.decisions
			}
			time.Sleep(11 * ms) // of the bubble's time, which takes none
			before := decisions()
			time.Sleep(3 * ms)
			made <- decisions() - before
		}()
		send(0, ms, 12*ms, 13*ms, 15*ms, 25*ms, 30*ms)
		if diff := cmp.Diff([]string{"0s: 0", "5ms: 1", "15ms: 2 3 4", "33ms: 5 6"}, log.all()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		if n := <-made; n != 0 {
			t.Errorf("%d decisions were made for two requests that came before a third, want none", n)
		}
	})
}
