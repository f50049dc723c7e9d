package sched

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/tensor"
)

var stressFor = flag.Duration("stress", time.Second, "how long each stress test runs")

// An unruly instance answers each request with its own id, fails now and then,
// and panics sometimes.
type unruly struct {
	running atomic.Bool
	seen    *sync.Map // ids that ran
	twice   *atomic.Int64
	largest *atomic.Int64
}

func (u *unruly) Run(b *infer.Batch) error {
	if u.running.Swap(true) {
		panic("BUG: two batches at once on one instance")
	}
	defer u.running.Store(false)
	if n := int64(b.Rows); n > u.largest.Load() {
		u.largest.Store(n)
	}
	for _, r := range b.Requests {
		if _, again := u.seen.LoadOrStore(r.ID, true); again {
			u.twice.Add(1)
		}
		out := r.Response.AddOutput()
		out.Name, out.Data = r.ID, r.Inputs[0].Data.First
	}
	switch rand.IntN(20) {
	case 0:
		return errors.New("no luck")
	case 1:
		panic("worse luck")
	case 2:
		b.Requests[0].Err = errors.New("its own fault")
	case 3:
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
	return nil
}

func (u *unruly) Close() error { return nil }

func (u *unruly) ComputesOnThread() {}

// TestBatcherStress submits, cancels, lets deadlines pass, fails instances and
// closes, all at once, and checks that every request has exactly one answer,
// its own. Run it long, and under the race detector, with -stress 60s.
func TestBatcherStress(t *testing.T) {
	configs := map[string]BatcherConfig{
		"inbox":   {Policy: &Triton{MaxRows: 8, Preferred: []int{8}}, Levels: []QueuePolicy{{}}, Signature: fixedSignature(8)},
		"plain":   {Policy: &Triton{MaxRows: 8, Preferred: []int{8}}, Levels: []QueuePolicy{{}}},
		"delay":   {Policy: &Triton{MaxRows: 8, Preferred: []int{4}, Delay: 200 * time.Microsecond}, Levels: []QueuePolicy{{}}},
		"ordered": {Policy: &Triton{MaxRows: 4, Preferred: []int{2, 4}}, PreserveOrder: true, Levels: []QueuePolicy{{}}},
		"auto":    {Policy: NewAuto(8), Levels: []QueuePolicy{{}}, Signature: variableSignature(8)},
		"queues": {
			Policy: &Triton{MaxRows: 8, Preferred: []int{3, 8}, Delay: 100 * time.Microsecond}, DefaultLevel: 1,
			Levels: []QueuePolicy{{MaxSize: 5}, {Timeout: 300 * time.Microsecond, Override: true}, {Timeout: 200 * time.Microsecond, Delay: true}},
		},
	}
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stress(t, cfg)
		})
	}
}

func stress(t *testing.T, cfg BatcherConfig) {
	const callers, instances = 32, 3
	if cfg.Signature == nil {
		cfg.Signature = variableSignature(maxRows(cfg))
	}
	var seen sync.Map
	var twice, largest, sent, good, bad atomic.Int64
	for end, first := time.Now().Add(*stressFor), true; first || time.Now().Before(end); first = false {
		var all []backend.Instance
		for range instances {
			all = append(all, &unruly{seen: &seen, twice: &twice, largest: &largest})
		}
		b, err := StartBatcher(cfg, all, &counting{})
		if err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		for _, i := range b.all { // runs are short and soon known to be
			i.runTime, i.long = time.Minute, true
		}
		b.mu.Unlock()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range 200 {
					if answer(t, b, fmt.Sprint(sent.Add(1))) {
						good.Add(1)
					} else {
						bad.Add(1)
					}
				}
			})
		}
		if !first && rand.IntN(4) == 0 {
			b.Close() // in the middle of it
		}
		wg.Wait()
		b.Close()
		b.mu.Lock() // a caller may leave only now
		if b.inFlight != 0 || len(b.idle) != instances || len(b.ready) != 0 || b.open != nil || len(b.given) != 0 || len(b.order) != 0 || !b.queue.empty() || b.inbox.newest.Load() != closedInbox {
			t.Fatalf("after Close: got %d in flight, %d idle, %d ready, open %v, %d in order, want %d idle and nothing else",
				b.inFlight, len(b.idle), len(b.ready), b.open, len(b.order), instances)
		}
		b.mu.Unlock()
	}
	if twice.Load() != 0 || largest.Load() > int64(cfg.Signature.MaxBatch) {
		t.Errorf("got %d requests run twice and a batch of %d rows, want none and at most %d", twice.Load(), largest.Load(), cfg.Signature.MaxBatch)
	}
	if good.Load() == 0 || bad.Load() == 0 {
		t.Errorf("got %d good and %d bad answers, want some of both", good.Load(), bad.Load())
	}
	t.Logf("%d requests, %d good answers, %d others, batches up to %d rows", sent.Load(), good.Load(), bad.Load(), largest.Load())
}

// TestDirectStress does the same without batching, while instances come and go and
// the runs are now worth a runner and now not.
func TestDirectStress(t *testing.T) {
	const callers = 32
	var seen sync.Map
	var twice, largest, sent, good, bad, ran atomic.Int64
	for end, first := time.Now().Add(*stressFor), true; first || time.Now().Before(end); first = false {
		instance := func() backend.Instance { return &unruly{seen: &seen, twice: &twice, largest: &largest} }
		stays, goes := instance(), instance()
		d := StartDirect([]backend.Instance{stays, goes}, &counting{})
		for _, i := range d.all { // runs are short and soon known to be
			i.runTime, i.long = time.Minute, true
		}
		served := d.all[0]
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range 100 {
					if answer(t, d, fmt.Sprint(sent.Add(1))) {
						good.Add(1)
					} else {
						bad.Add(1)
					}
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				d.Remove(goes)
				if err := d.Add(goes); err != nil {
					t.Error(err)
				}
			}
		})
		if !first && rand.IntN(4) == 0 {
			d.Close() // in the middle of it
		}
		wg.Wait()
		d.Close()
		d.mu.Lock() // a caller may leave only now
		if d.inFlight != 0 || len(d.idle) != 2 || d.queue.n != 0 {
			t.Fatalf("after Close: got %d in flight, %d idle and %d waiting, want 2 idle and nothing else", d.inFlight, len(d.idle), d.queue.n)
		}
		if served.runner != nil {
			ran.Add(1)
		}
		d.mu.Unlock()
	}
	if twice.Load() != 0 || good.Load() == 0 || bad.Load() == 0 || ran.Load() == 0 {
		t.Errorf("got %d requests run twice, %d good and %d bad answers, a runner %d times, want none twice and some of the others",
			twice.Load(), good.Load(), bad.Load(), ran.Load())
	}
}

// TestLimitedStress has requests of two models, whose instances share a resource,
// come and go, and checks that none of it is lost.
func TestLimitedStress(t *testing.T) {
	for name, start := range limitedSchedulers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for end, first := time.Now().Add(*stressFor), true; first || time.Now().Before(end); first = false {
				stressLimited(t, start)
			}
		})
	}
}

func stressLimited(t *testing.T, start func([]backend.Instance) (Scheduler, error)) {
	var limits Limits
	limits.Set("R", 2)
	l := NewLimiter(limits)
	var seen sync.Map
	var twice, largest, sent atomic.Int64
	var wg sync.WaitGroup
	var models []Scheduler
	for range 2 {
		var all []backend.Instance
		for range 2 {
			all = append(all, &Limited{&unruly{seen: &seen, twice: &twice, largest: &largest}, join(t, l, 0, `resources { name: "R" count: 1 }`)})
		}
		s, err := start(all)
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, s)
		for range 8 {
			wg.Go(func() {
				for range 100 {
					answer(t, s, fmt.Sprint(sent.Add(1)))
				}
			})
		}
	}
	wg.Wait()
	for _, s := range models {
		s.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used[Resource{"R", 0}] != 0 || len(l.waiting) != 0 || twice.Load() != 0 {
		t.Errorf("got %d of the resource in use, %d instances waiting and %d requests run twice, want none", l.used[Resource{"R", 0}], len(l.waiting), twice.Load())
	}
}

// answer makes one request, perhaps an impatient one, and reports whether it got
// a good answer. A good one must be its own.
func answer(t *testing.T, b Scheduler, id string) bool {
	ctx := context.Background()
	switch rand.IntN(8) {
	case 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(400))*time.Microsecond)
		defer cancel()
	case 1:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go cancel()
	case 2:
		caller := infer.NewCaller(ctx)
		defer caller.Leave()
		ctx = caller
		go caller.Leave()
	case 3:
		caller := infer.NewCaller(ctx)
		defer caller.Leave()
		ctx = caller
	}
	r := infer.NewRequest()
	defer r.Release()
	r.ID, r.Rows, r.Priority, r.Timeout = id, 1+rand.IntN(2), rand.Uint64N(5), time.Duration(rand.IntN(500))*time.Microsecond
	in := r.AddInput()
	in.Shape, in.Data.First = tensor.Shape{int64(r.Rows), int64(1 + rand.IntN(2))}, []byte(id)
	if err := b.Do(ctx, r); err != nil {
		return false
	}
	if len(r.Response.Outputs) != 1 || r.Response.Outputs[0].Name != id || string(r.Response.Outputs[0].Data) != id {
		t.Errorf("request %s: got outputs %v, want its own", id, r.Response.Outputs)
	}
	return true
}
