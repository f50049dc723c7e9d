package sched

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/status"
)

// slow is an instance that takes a fixed time for each batch.
type slow struct {
	takes time.Duration
	fails error
	panic string

	mu  sync.Mutex
	ran []string // the requests' ids, in the order of their executions
}

func (s *slow) Run(b *infer.Batch) error {
	s.mu.Lock()
	for _, r := range b.Requests {
		s.ran = append(s.ran, r.ID)
	}
	s.mu.Unlock()
	time.Sleep(s.takes)
	if s.panic != "" {
		panic(s.panic)
	}
	return s.fails
}

func (s *slow) Close() error { return nil }

func (s *slow) ComputesOnThread() {}

func (s *slow) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ran)
}

// tally counts what a scheduler records.
type tally struct {
	mu                      sync.Mutex
	started, done, failures int
	reasons                 []infer.Reason  // of each batch
	took                    []time.Duration // of each batch that ended
}

func (t *tally) begun() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.started
}

func (t *tally) lasted() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.took)
}

func (t *tally) Started(b *infer.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started += len(b.Requests)
	t.reasons = append(t.reasons, b.Reason)
}

func (t *tally) Executed(b *infer.Batch, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, b.Times.End.Sub(b.Times.Start))
	t.done++
	if err != nil {
		t.failures++
	}
}

func request(id string) *infer.Request {
	r := infer.NewRequest()
	r.ID, r.Rows = id, 1
	return r
}

const ms = time.Millisecond

func TestDirectRunsOneAfterTheOtherInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, rec := &slow{takes: 10 * ms}, &tally{}
		d := StartDirect([]backend.Instance{in}, rec)
		start := time.Now()
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} {
			wg.Go(func() {
				if err := d.Do(t.Context(), request(id)); err != nil {
					t.Errorf("request %s: got %v, want no error", id, err)
				}
			})
			synctest.Wait() // so that the arrivals have an order
		}
		wg.Wait()
		if got, want := in.order(), []string{"a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("got order %v, want %v", got, want)
		}
		if got := time.Since(start); got != 30*ms {
			t.Errorf("got %v for three requests, want exactly 30ms", got)
		}
		if rec.started != 3 || rec.done != 3 || rec.failures != 0 {
			t.Errorf("got %d started, %d done, %d failed, want 3, 3, 0", rec.started, rec.done, rec.failures)
		}
		d.Close()
	})
}

func TestDirectUsesEveryInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := StartDirect([]backend.Instance{&slow{takes: 10 * ms}, &slow{takes: 10 * ms}}, &tally{})
		defer d.Close()
		start := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _ = d.Do(t.Context(), request("")) })
		}
		wg.Wait()
		if got := time.Since(start); got != 20*ms {
			t.Errorf("got %v for four requests on two instances, want exactly 20ms", got)
		}
	})
}

func TestDirectTakesACancelledRequestOutOfTheQueueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &slow{takes: 10 * ms}
		d := StartDirect([]backend.Instance{in}, &tally{})
		defer d.Close()
		go func() { _ = d.Do(t.Context(), request("first")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*ms)
		defer cancel()
		start := time.Now()
		r := request("second")
		err := d.Do(ctx, r)
		if got := status.CodeOf(err); got != status.DeadlineExceeded {
			t.Errorf("got code %v (%v), want DeadlineExceeded", got, err)
		}
		if got := time.Since(start); got != 3*ms {
			t.Errorf("got an answer after %v, want exactly 3ms", got)
		}
		if r.Started || d.Pending() != 0 {
			t.Errorf("got started %v and %d pending, want neither", r.Started, d.Pending())
		}
		if err := d.Do(t.Context(), request("third")); err != nil {
			t.Errorf("the next request: got %v, want no error", err)
		}
		if got, want := in.order(), []string{"first", "third"}; !slices.Equal(got, want) {
			t.Errorf("got order %v, want %v", got, want)
		}
	})
}

func TestDirectCloseRunsWhatIsQueuedAndRefusesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := StartDirect([]backend.Instance{&slow{takes: 10 * ms}}, &tally{})
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- d.Do(t.Context(), request("")) }()
		}
		synctest.Wait()
		start := time.Now()
		d.Close()
		if got := time.Since(start); got != 20*ms {
			t.Errorf("Close took %v, want exactly the 20ms of two requests", got)
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Errorf("got %v, want both requests to finish", err)
			}
		}
		if got := status.CodeOf(d.Do(t.Context(), request(""))); got != status.Unavailable {
			t.Errorf("after Close: got code %v, want Unavailable", got)
		}
		d.Close() // a second call is harmless
	})
}

func TestDirectKeepsAnInstanceThatFailsOrPanics(t *testing.T) {
	for name, in := range map[string]*slow{
		"it fails":  {fails: status.Errorf(status.Internal, "no luck")},
		"it panics": {panic: "no luck"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &tally{}
			d := StartDirect([]backend.Instance{in}, rec)
			defer d.Close()
			for range 3 {
				if got := status.CodeOf(d.Do(t.Context(), request(""))); got != status.Internal {
					t.Fatalf("got code %v, want Internal", got)
				}
			}
			if rec.done != 3 || rec.failures != 3 {
				t.Errorf("got %d done and %d failed, want 3 and 3", rec.done, rec.failures)
			}
		})
	}
}

func TestDirectReportsAFaultOfTheRequestAlone(t *testing.T) {
	fault := errors.New("its own fault")
	d := StartDirect([]backend.Instance{&slow{}}, &tally{})
	defer d.Close()
	r := request("")
	r.Err = fault
	if err := d.Do(t.Context(), r); !errors.Is(err, fault) {
		t.Errorf("got %v, want %v", err, fault)
	}
}

func TestDirectLosesNoInstanceUnderCancellation(t *testing.T) {
	const instances, callers, rounds = 2, 16, 200
	var all []backend.Instance
	for range instances {
		all = append(all, &slow{})
	}
	d := StartDirect(all, &tally{})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+c)%2 == 0 {
					go cancel()
				}
				_ = d.Do(ctx, request("")) // either way is right
				cancel()
			}
		})
	}
	wg.Wait()
	d.Close() // hangs if an instance was lost
	if len(d.idle) != instances {
		t.Errorf("got %d idle instances, want %d", len(d.idle), instances)
	}
}

func TestDirectDoesNotAllocateWhenAnInstanceIsIdle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	d := StartDirect([]backend.Instance{&slow{}}, &tally{})
	defer d.Close()
	in := &instant{}
	d.all[0].backend = in
	r, ctx := request(""), t.Context()
	if got := testing.AllocsPerRun(100, func() { _ = d.Do(ctx, r) }); got != 0 {
		t.Errorf("got %v allocations per request, want 0", got)
	}
}

type instant struct{}

func (*instant) Run(*infer.Batch) error { return nil }
func (*instant) Close() error           { return nil }

func BenchmarkDirect(b *testing.B) {
	d := StartDirect([]backend.Instance{&instant{}}, &tally{})
	defer d.Close()
	r, ctx := request(""), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = d.Do(ctx, r)
	}
}
