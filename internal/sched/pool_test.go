package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// startEach starts each kind of scheduler without batching, in a bubble.
func startEach(t *testing.T, instances []backend.Instance, test func(t *testing.T, s Scheduler, do func(id string))) {
	for name, start := range limitedSchedulers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := start(instances)
				if err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				test(t, s, func(id string) {
					wg.Go(func() {
						if err := s.Do(t.Context(), request(id)); err != nil {
							t.Errorf("request %s: got %v, want an answer", id, err)
						}
					})
					synctest.Wait()
				})
				wg.Wait()
				s.Close()
			})
		})
	}
}

func TestAnInstanceThatIsAddedTakesWhatWaits(t *testing.T) {
	log := &runLog{}
	one, two := &recorder{takes: 10 * ms, log: log}, &recorder{takes: 10 * ms, log: log}
	startEach(t, []backend.Instance{one}, func(t *testing.T, s Scheduler, do func(string)) {
		log.restart()
		do("a")
		do("b")
		time.Sleep(3 * ms)
		if err := s.Add(two); err != nil {
			t.Fatal(err)
		}
		do("c")
		time.Sleep(10 * ms)
		if diff := cmp.Diff([]string{"0s: a", "3ms: b", "10ms: c"}, log.all()); diff != "" {
			t.Errorf("executions (-want +got):\n%s", diff)
		}
	})
}

func TestAnInstanceThatIsRemovedEndsItsBatchAndGetsNoOther(t *testing.T) {
	log := &runLog{}
	one, two := &recorder{takes: 10 * ms, log: log}, &recorder{takes: 20 * ms, log: log}
	startEach(t, []backend.Instance{one, two}, func(t *testing.T, s Scheduler, do func(string)) {
		log.restart()
		do("a") // on the last, which takes longer
		do("b")
		do("c")
		do("d")
		s.Remove(two)
		if got := time.Since(log.start); got != 20*ms {
			t.Errorf("removed after %v, want the 20ms of its batch", got)
		}
		s.Remove(two) // does nothing
		time.Sleep(15 * ms)
		if diff := cmp.Diff([]string{"0s: a", "0s: b", "10ms: c", "20ms: d"}, log.all()); diff != "" {
			t.Errorf("executions (-want +got):\n%s", diff)
		}
	})
}

func TestRequestsWaitForAnInstanceWhenTheLastIsRemoved(t *testing.T) {
	log := &runLog{}
	in := &recorder{takes: 10 * ms, log: log}
	startEach(t, []backend.Instance{in}, func(t *testing.T, s Scheduler, do func(string)) {
		log.restart()
		s.Remove(in)
		do("a")
		time.Sleep(5 * ms)
		if err := s.Add(in); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"5ms: a"}, log.all()); diff != "" {
			t.Errorf("executions (-want +got):\n%s", diff)
		}
	})
}

// An instance takes batches ahead only while it is the only one: others run while
// one gets its inputs.
func TestOnlyASingleInstanceTakesBatchesAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := startEager(t, plainPolicy, 10*ms)
		other := &recorder{takes: time.Hour, log: b.log}
		b.send("a", 8)
		if err := b.Add(other); err != nil {
			t.Fatal(err)
		}
		b.send("b", 8) // on the other
		b.send("c", 8)
		time.Sleep(15 * ms)
		b.send("d", 8)
		if diff := cmp.Diff([]string{"0s: a", "11ms: c"}, got.all()); diff != "" {
			t.Errorf("taken by the first (-want +got):\n%s", diff)
		}
		b.Remove(other) // after an hour
		got.restart()
		b.send("e", 8)
		b.send("f", 8)
		if diff := cmp.Diff([]string{"0s: e", "0s: f"}, got.all()); diff != "" {
			t.Errorf("taken by the first when it is alone again (-want +got):\n%s", diff)
		}
		b.wg.Wait()
		b.Close()
	})
}

// TestPoolStress adds and removes instances under load: no request is lost, none
// runs twice and no instance that was removed runs.
func TestPoolStress(t *testing.T) {
	for name, start := range limitedSchedulers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stressPool(t, start)
		})
	}
}

// A removable instance counts the batches that it runs after it was removed.
type removable struct {
	unruly
	removed atomic.Bool
	late    *atomic.Int64
}

func (r *removable) Run(b *infer.Batch) error {
	defer func() {
		if r.removed.Load() {
			r.late.Add(1)
		}
	}()
	return r.unruly.Run(b)
}

func stressPool(t *testing.T, start func([]backend.Instance) (Scheduler, error)) {
	var seen sync.Map
	var twice, largest, sent, late atomic.Int64
	s, err := start(nil)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var callers, movers sync.WaitGroup
	for range 2 {
		movers.Go(func() {
			for {
				in := &removable{unruly: unruly{seen: &seen, twice: &twice, largest: &largest}, late: &late}
				if err := s.Add(in); err != nil {
					t.Error(err)
				}
				for range rand.IntN(50) {
					answer(t, s, fmt.Sprint(sent.Add(1)))
				}
				s.Remove(in)
				in.removed.Store(true)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 8 {
		callers.Go(func() {
			for end := time.Now().Add(*stressFor); time.Now().Before(end); {
				answer(t, s, fmt.Sprint(sent.Add(1)))
			}
		})
	}
	callers.Wait()
	close(stop)
	movers.Wait()
	s.Close()
	if twice.Load() != 0 || late.Load() != 0 {
		t.Errorf("got %d requests run twice and %d batches on instances that were removed, want none", twice.Load(), late.Load())
	}
}

// TestBatcherRunsWhatAVirtualOneDoes plays random schedules to a batcher with real
// goroutines and to one in virtual time.
func TestBatcherRunsWhatAVirtualOneDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for n := range 300 {
		s := randomSchedule(rng)
		s.ahead, s.drains = 0, false
		for i := range s.arrivals {
			s.arrivals[i].leaves = 0
		}
		want, got := playNew(s), playReal(t, s)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("schedule %d, policy %+v (-virtual +real):\n%s", n, s.cfg.Policy, diff)
		}
	}
}

// A timedInstance takes as long for a batch as a driver says.
type timedInstance struct {
	d  *driver
	mu *sync.Mutex
}

func (in *timedInstance) Run(b *infer.Batch) error {
	in.mu.Lock()
	in.d.now = epoch.Add(time.Since(in.d.now0))
	in.d.begin(b.Requests, b.Rows, b.Reason, nil)
	lasts := in.d.ends[len(in.d.ends)-1].at.Sub(in.d.now)
	in.mu.Unlock()
	time.Sleep(lasts)
	return nil
}

func (in *timedInstance) Close() error { return nil }

// playReal plays a schedule to a batcher with goroutines.
func playReal(t *testing.T, s schedule) []string {
	d := &driver{schedule: s}
	synctest.Test(t, func(t *testing.T) {
		d.now0 = time.Now()
		var mu sync.Mutex
		var all []backend.Instance
		for range s.instances {
			all = append(all, &timedInstance{d, &mu})
		}
		b, err := startBatcher(s.cfg, all, &counting{}, newRuntimeTimer, func() (pauser, error) { return make(chanPauser, 1), nil })
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i, a := range s.arrivals {
			time.Sleep(time.Until(d.now0.Add(a.at)))
			r := &infer.Request{ID: fmt.Sprint(i), Rows: a.rows, Priority: a.priority, Timeout: a.timeout}
			r.Inputs = append(r.Inputs, infer.Input{Shape: tensor.Shape{int64(a.rows), a.shape}})
			wg.Go(func() {
				what := "refused"
				switch err := b.Do(t.Context(), r); {
				case err == nil:
					return
				case err == ErrTimeout:
					what = "rejected"
				}
				mu.Lock()
				defer mu.Unlock()
				d.log = append(d.log, fmt.Sprintf("%v: %s %s", time.Since(d.now0), r.ID, what))
			})
			synctest.Wait()
		}
		wg.Wait()
		b.Close()
	})
	return d.log
}
