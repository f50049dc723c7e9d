package sched

import (
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
	turn chan struct{} // holds a value while one runs; a mutex would stop the bubble's clock
	got  *runLog       // when each batch was taken
}

func (*eager) Ahead() int { return 1 }

func (e *eager) Run(b *infer.Batch) error {
	e.got.add(b)
	time.Sleep(e.takes / 10)
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	return e.recorder.Run(b)
}

// startOver returns a batcher with the plain policy over instances that log what
// they run in one place.
func startOver(t *testing.T, log *runLog, instances ...backend.Instance) *testBatcher {
	t.Helper()
	cfg := plainPolicy
	cfg.Levels, cfg.Signature = []QueuePolicy{{}}, fixedSignature(cfg.Policy.MaxRows)
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

func TestBatcherHasFullBatchesReadyAheadAndLeavesOthersOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, got := &runLog{start: time.Now()}, &runLog{start: time.Now()}
		b := startOver(t, log, &eager{recorder: recorder{takes: 10 * ms, log: log}, got: got, turn: make(chan struct{}, 1)})
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
