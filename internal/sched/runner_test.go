package sched

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/status"
)

func TestRunsOfSomeLengthAreHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		runs []time.Duration
		want bool
	}{
		"none yet":                        {nil, false},
		"a long one":                      {[]time.Duration{200 * us}, true},
		"a short one":                     {[]time.Duration{10 * us}, false},
		"between, and short before":       {[]time.Duration{10 * us, 50 * us, 50 * us}, false},
		"long for some time":              {append([]time.Duration{10 * us}, slices.Repeat([]time.Duration{200 * us}, 40)...), true},
		"a short one among long ones":     {[]time.Duration{200 * us, 1 * us, 200 * us}, true},
		"between, after long ones":        {append([]time.Duration{200 * us}, slices.Repeat([]time.Duration{50 * us}, 99)...), true},
		"short after long ones":           {append([]time.Duration{200 * us}, slices.Repeat([]time.Duration{10 * us}, 99)...), false},
		"the system has stopped a thread": {append(slices.Repeat([]time.Duration{10 * us}, 20), 8*ms, 10*us, 8*ms), false},
	} {
		t.Run(name, func(t *testing.T) {
			var i instance
			for _, r := range c.runs {
				i.observe(r)
			}
			if i.long != c.want {
				t.Errorf("got handed over %v (runs take %v), want %v", i.long, i.runTime, c.want)
			}
		})
	}
}

func TestACallerLeavesTheQueueOfARunnerButNotARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &slow{takes: 10 * ms}
		d := StartDirect([]backend.Instance{in}, &tally{})
		start := time.Now()
		do := func(ctx context.Context, id string) chan error {
			err := make(chan error, 1)
			go func() { err <- d.Do(ctx, request(id)) }()
			synctest.Wait()
			return err
		}
		first := do(t.Context(), "first")
		ctx, cancel := context.WithTimeout(t.Context(), 13*ms)
		defer cancel()
		running, waiting := do(ctx, "running"), do(ctx, "waiting")
		if err := <-first; err != nil {
			t.Errorf("the first: got %v, want an answer", err)
		}
		if got := status.CodeOf(<-waiting); got != status.DeadlineExceeded || time.Since(start) != 13*ms {
			t.Errorf("the one that waits: got %v after %v, want DeadlineExceeded after 13ms", got, time.Since(start))
		}
		if err := <-running; err != nil || time.Since(start) != 20*ms {
			t.Errorf("the one that runs: got %v after %v, want an answer after 20ms", err, time.Since(start))
		}
		if d.all[0].runner == nil {
			t.Error("no runner was started for requests of 10ms that waited")
		}
		d.Close()
	})
}

func TestARunnerReportsWhatFails(t *testing.T) {
	for name, in := range map[string]*slow{
		"it fails":  {takes: ms, fails: status.Errorf(status.Internal, "no luck")},
		"it panics": {takes: ms, panic: "no luck"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &tally{}
				d := StartDirect([]backend.Instance{in}, rec)
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						if got := status.CodeOf(d.Do(t.Context(), request(""))); got != status.Internal {
							t.Errorf("got code %v, want Internal", got)
						}
					})
				}
				wg.Wait()
				if rec.done != 5 || rec.failures != 5 {
					t.Errorf("got %d done and %d failed, want 5 and 5", rec.done, rec.failures)
				}
				d.Close()
			})
		})
	}
}

func TestARunnerReportsAFaultOfARequestToItsCallerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := StartDirect([]backend.Instance{&slow{takes: ms}}, &tally{})
		fault := errors.New("its own fault")
		var wg sync.WaitGroup
		for at := range 5 {
			wg.Go(func() {
				r := request("")
				if at%2 == 0 {
					r.Err = fault
				}
				if err := d.Do(t.Context(), r); !errors.Is(err, r.Err) {
					t.Errorf("request %d: got %v, want %v", at, err, r.Err)
				}
			})
		}
		wg.Wait()
		d.Close()
	})
}

func TestARunnerBlocksOnAMutexThatIsHeldForLong(t *testing.T) {
	var p pool
	p.mu.Lock()
	locked := make(chan bool)
	go func() {
		p.lockOnThread()
		close(locked)
	}()
	for start := time.Now(); time.Since(start) < 3*longestTry; {
		select {
		case <-locked:
			t.Fatal("got the mutex while another held it")
		default:
		}
	}
	p.mu.Unlock()
	<-locked
	if p.mu.TryLock() {
		t.Error("the mutex is free, want it locked by the one that asked for it")
	}
}

// With runners the same batches run, at the same times, as with the first request
// of each as its leader.
func TestBatchesAreTheSameWhenRunnersLead(t *testing.T) {
	policies := map[string]func() Policy{
		"at once":   func() Policy { return &Triton{MaxRows: 4, Preferred: []int{4}} },
		"delay":     func() Policy { return &Triton{MaxRows: 8, Preferred: []int{3}, Delay: 2 * ms} },
		"automatic": func() Policy { return NewAuto(8) },
	}
	for name, policy := range policies {
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				want, none := randomRuns(t, policy(), seed, func(r *recorder) backend.Instance { return r })
				got, runners := randomRuns(t, policy(), seed, func(r *recorder) backend.Instance { return computer{r} })
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("batches (-without +with runners):\n%s", diff)
				}
				if none != 0 || runners == 0 {
					t.Errorf("got %d and %d runners, want none and some", none, runners)
				}
			})
		}
	}
}

// randomRuns sends requests at random times to two instances, and returns what ran when and how many runners there were.
func randomRuns(t *testing.T, policy Policy, seed uint64, wrap func(*recorder) backend.Instance) (runs []string, runners int) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		instances := []backend.Instance{wrap(&recorder{takes: 5 * ms, log: log}), wrap(&recorder{takes: 3 * ms, log: log})}
		cfg := BatcherConfig{Policy: policy, Levels: []QueuePolicy{{}}, Signature: fixedSignature(8)}
		b, err := startBatcher(cfg, instances, &tally{}, newRuntimeTimer, func() (pauser, error) { return make(chanPauser, 1), nil })
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(seed, 1))
		var wg sync.WaitGroup
		for n := range 80 {
			time.Sleep(time.Duration(random.IntN(2000)) * us)
			r := request(fmt.Sprint(n))
			r.Rows = 1
			wg.Go(func() {
				if err := b.Do(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		for _, i := range b.all {
			if i.runner != nil {
				runners++
			}
		}
		b.Close()
		runs = slices.Sorted(slices.Values(log.all()))
	})
	return runs, runners
}

// An instance that waits for another process has no use for a thread.
func TestOnlyAnInstanceThatComputesHasARunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := StartDirect([]backend.Instance{elsewhere{&slow{takes: 10 * ms}}}, &tally{})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _ = d.Do(t.Context(), request("")) })
		}
		wg.Wait()
		if d.all[0].runner != nil {
			t.Error("got a runner, want none")
		}
		d.Close()
	})
}

// elsewhere hides that an instance computes on its thread.
type elsewhere struct{ backend.Instance }

func TestDirectDoesNotAllocateWhenARunnerRuns(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	in := &gated{begun: make(chan struct{}), end: make(chan struct{})}
	d := StartDirect([]backend.Instance{in}, &tally{})
	defer d.Close()
	d.all[0].runTime, d.all[0].long = time.Hour, true
	ctx := t.Context()
	answered := make(chan struct{})
	send := make(chan *infer.Request)
	defer close(send)
	for range 2 {
		go func() {
			for r := range send {
				_ = d.Do(ctx, r)
				answered <- struct{}{}
			}
		}()
	}
	one, two := request(""), request("")
	pair := func() {
		send <- one
		<-in.begun
		send <- two
		for d.Pending() == 0 {
		}
		in.end <- struct{}{}
		<-in.begun
		in.end <- struct{}{}
		<-answered
		<-answered
	}
	if got := testing.AllocsPerRun(100, pair); got != 0 {
		t.Errorf("got %v allocations for two requests, want 0", got)
	}
	if d.all[0].runner == nil {
		t.Error("no runner was started")
	}
}

// gated is an instance whose runs end when they are told to.
type gated struct{ begun, end chan struct{} }

func (g *gated) Run(*infer.Batch) error {
	g.begun <- struct{}{}
	<-g.end
	return nil
}

func (g *gated) Close() error      { return nil }
func (g *gated) ComputesOnThread() {}
