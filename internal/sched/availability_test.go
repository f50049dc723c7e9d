package sched

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// moody is an instance that says when it can run.
type moody struct {
	recorder
	changed func(available bool)
}

func (m *moody) Watch(changed func(bool)) { m.changed = changed }

// eager is an instance that takes a batch ahead. Getting inputs ready takes a
// tenth of a run.
type eager struct {
	recorder
	got *runLog // when each batch was taken
}

func (*eager) Ahead() int { return 1 }

func (e *eager) Run(b *infer.Batch) error {
	e.got.add(b)
	time.Sleep(e.takes / 10)
	b.Turn.Await()
	return e.recorder.Run(b)
}

// startOver returns a batcher with the plain policy over instances that log what
// they run in one place.
func startOver(t *testing.T, log *runLog, instances ...backend.Instance) *testBatcher {
	t.Helper()
	return startWith(t, plainPolicy, log, instances...)
}

func startWith(t *testing.T, cfg BatcherConfig, log *runLog, instances ...backend.Instance) *testBatcher {
	t.Helper()
	cfg.Levels, cfg.Signature = []QueuePolicy{{}}, fixedSignature(maxRows(cfg))
	b, err := startBatcher(cfg, instances, &tally{}, newRuntimeTimer, func() (pauser, error) { return plainPauser{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return &testBatcher{Batcher: b, t: t, log: log, start: time.Now(), out: make(map[string]string)}
}

func TestBatcherGivesNothingToAnInstanceThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		m := &moody{recorder: recorder{takes: 10 * ms, log: log}}
		b := startOver(t, log, m)
		m.changed(false)
		b.send("a", 1)
		b.send("b", 1)
		time.Sleep(5 * ms)
		m.changed(true)
		synctest.Wait()
		m.changed(false) // while it runs
		b.send("c", 1)
		time.Sleep(20 * ms)
		m.changed(true)
		b.finish("5ms: a b", "25ms: c")
	})
}

func TestBatcherOtherInstancesServeForOneThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		m := &moody{recorder: recorder{takes: time.Hour, log: log}}
		b := startOver(t, log, &recorder{takes: 10 * ms, log: log}, m)
		m.changed(false)
		b.send("a", 8)
		b.send("b", 8)
		b.finish("0s: a", "10ms: b")
	})
}

// startEager returns a batcher over an instance that takes batches ahead, which
// has run one batch for the given time, and the log of batches that it took.
func startEager(t *testing.T, cfg BatcherConfig, takes time.Duration) (*testBatcher, *runLog) {
	t.Helper()
	log, got := &runLog{start: time.Now()}, &runLog{start: time.Now()}
	b := startWith(t, cfg, log, &eager{recorder: recorder{takes: takes, log: log}, got: got})
	b.send("first", maxRows(cfg))
	b.wg.Wait()
	log.restart()
	got.restart()
	return b, got
}

func TestBatcherHasFullBatchesReadyAheadAndLeavesOthersOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := startEager(t, plainPolicy, 10*ms)
		b.send("a", 1)
		time.Sleep(5 * ms)
		b.send("b", 8) // full: made ready while a runs
		b.send("c", 1) // not full: may grow until b has run
		time.Sleep(10 * ms)
		b.send("d", 1)
		b.finish("1ms: a", "11ms: b", "22ms: c d")
		if diff := cmp.Diff([]string{"0s: a", "5ms: b", "21ms: c d"}, got.all()); diff != "" {
			t.Errorf("batches taken (-want +got):\n%s", diff)
		}
	})
}

func TestBatchesAheadRunInTheOrderInWhichTheyWereFormed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := startEager(t, plainPolicy, 10*ms)
		var want []string
		for i, id := range []string{"a", "b", "c", "d", "e"} {
			b.send(id, 8)
			want = append(want, fmt.Sprintf("%v: %s", time.Duration(1+10*i)*ms, id))
		}
		b.finish(want...)
	})
}

func TestABatchAheadStartsWhenTheOneBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := startEager(t, plainPolicy, 10*ms)
		rec := b.record.(*tally)
		before := rec.begun()
		b.send("a", 8)
		time.Sleep(5 * ms)
		b.send("b", 8)
		if got := rec.begun() - before; got != 1 {
			t.Errorf("got %d requests started while one runs and one is ahead, want 1", got)
		}
		b.finish("1ms: a", "11ms: b")
		want := []time.Duration{11 * ms, 10 * ms} // inputs are part of the first only
		if diff := cmp.Diff(want, rec.lasted()[1:]); diff != "" {
			t.Errorf("from start to end of each batch (-want +got):\n%s", diff)
		}
	})
}

func TestBatchesThatMayBeMergedAreNotTakenAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{2, 6}, Delay: 5 * ms}}
		b, _ := startEager(t, cfg, 20*ms)
		b.send("a", 2)
		b.send("b", 3) // closed by the next, which would pass 6
		b.send("c", 4)
		b.send("d", 1)
		b.finish("2ms: a", "24ms: b c d")
	})
}

func TestNothingIsTakenAheadOfALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := startEager(t, plainPolicy, 10*longestAhead)
		b.send("a", 8)
		ctx, cancel := context.WithCancel(t.Context())
		b.sendUntil(ctx, "b", 8)
		cancel()
		b.wg.Wait()
		if diff := cmp.Diff([]string{"0s: a"}, got.all()); diff != "" {
			t.Errorf("batches taken (-want +got):\n%s", diff)
		}
		b.Close()
	})
}

func TestDirectGivesNothingToAnInstanceThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		m := &moody{recorder: recorder{takes: 10 * ms, log: log}}
		d := StartDirect([]backend.Instance{m}, &tally{})
		m.changed(false)
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b"} {
			wg.Go(func() {
				if err := d.Do(t.Context(), request(id)); err != nil {
					t.Errorf("%s: got %v, want an answer", id, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(5 * ms)
		m.changed(true)
		synctest.Wait()
		m.changed(false)
		time.Sleep(20 * ms)
		d.Drain()
		m.changed(true)
		wg.Wait()
		d.Close()
		if got := log.all(); len(got) != 2 || got[0] != "5ms: a" || got[1] != "25ms: b" {
			t.Errorf("got executions %q, want a at 5ms and b at 25ms", got)
		}
	})
}

func TestDirectClosesWithAnInstanceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{recorder: recorder{log: &runLog{}}}
		d := StartDirect([]backend.Instance{m}, &tally{})
		m.changed(false)
		d.Close() // would not return
	})
}

// TestBatcherClosesWhenTheLastThatWaitsLeaves has a request wait for an instance
// that is away, in the inbox or in a queue with a timeout, and leave while the
// batcher closes.
func TestBatcherClosesWhenTheLastThatWaitsLeaves(t *testing.T) {
	for name, policy := range map[string]QueuePolicy{"in the inbox": {}, "with a timeout": {Timeout: time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, set := &moody{}, &timerGuard{t: t}
				cfg := plainPolicy
				cfg.Levels, cfg.Signature = []QueuePolicy{policy}, fixedSignature(maxRows(cfg))
				b, err := startBatcher(cfg, []backend.Instance{in}, &tally{}, set.start, func() (pauser, error) { return plainPauser{}, nil })
				if err != nil {
					t.Fatal(err)
				}
				set.drained = b.drained
				in.changed(false)
				ctx, cancel := context.WithCancel(context.Background())
				got := make(chan error, 1)
				go func() { got <- b.Do(ctx, request("")) }()
				synctest.Wait()
				b.Drain()
				select {
				case <-b.drained:
					t.Error("drained with a request inside, want it to wait")
				default:
				}
				cancel()
				if err := <-got; err != errWithdrawn {
					t.Errorf("got %v, want %v", err, errWithdrawn)
				}
				b.timeUp() // the timer may go off just now
				b.Close()
			})
		})
	}
}

// A timerGuard makes a timer that must not be set once the batcher is drained:
// it may be closed then.
type timerGuard struct {
	timer
	t       *testing.T
	drained chan struct{}
}

func (g *timerGuard) start(f func()) (timer, error) {
	var err error
	g.timer, err = newRuntimeTimer(f)
	return g, err
}

func (g *timerGuard) set(d time.Duration) {
	select {
	case <-g.drained:
		g.t.Error("got the timer set after the last request left, want it left alone")
	default:
		g.timer.set(d)
	}
}
