package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Target is something to load: an address and a prepared request.
type Target interface {
	// Open connects n callers. It returns all of them or none.
	Open(ctx context.Context, n int) ([]Caller, error)
}

// A Caller makes one request at a time.
type Caller interface {
	// First makes one request and checks the answer.
	First(ctx context.Context) error
	// Do makes one request and waits for the whole answer. It checks only the
	// status.
	Do(ctx context.Context) error
	// Close ends the caller; a second call does nothing. It may be called while
	// Do runs, which then returns an error soon. Callers of one Open may share
	// connections, so they are closed together.
	Close() error
}

// A Limit ends a run after Requests requests, after Duration, or, when both are
// set, after whichever comes first.
type Limit struct {
	Requests int64
	Duration time.Duration
}

const (
	// A caller stops after giveUpAfter failures in a row: a dead server refuses
	// so fast that its callers would use up the CPU.
	giveUpAfter = 100
	// grace is how long after a run's duration an answer may still come before
	// the server counts as hung.
	grace = 15 * time.Second
)

// A Result is the outcome of a run. Only answered requests count; Errors has
// those that failed.
type Result struct {
	Requests int64
	Elapsed  time.Duration
	Latency  Histogram
	// Errors counts the failures by kind: "http 503", "grpc Unavailable",
	// "closed by server", "connect", "protocol", "timeout", "cancelled", "other".
	Errors map[string]int64
	// FirstError is one of the errors of the run, nil when there were none.
	FirstError error
}

// Throughput returns the answered requests per second.
func (r *Result) Throughput() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Requests) / r.Elapsed.Seconds()
}

// Failed returns the number of failed requests.
func (r *Result) Failed() int64 {
	var n int64
	for _, c := range r.Errors {
		n += c
	}
	return n
}

// A Generator is a set of connected callers.
type Generator struct {
	callers []Caller
}

// Open connects n callers to t. Each makes one request in turn, and the target
// checks the answer. The callers live until Close.
func Open(ctx context.Context, t Target, n int) (*Generator, error) {
	if n < 1 {
		return nil, fmt.Errorf("load: %d callers; at least one is needed", n)
	}
	callers, err := t.Open(ctx, n)
	if err != nil {
		return nil, err
	}
	g := &Generator{callers: callers}
	for _, c := range callers {
		if err := c.First(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("first request: %w", err), g.Close())
		}
	}
	return g, nil
}

// Close ends the callers and their connections.
func (g *Generator) Close() error {
	var errs []error
	for _, c := range g.callers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Run generates load until the limit is reached and every caller has its last
// answer, so that before and after it the server has no request in flight. When
// ctx ends or the server hangs, Run closes the callers and returns the counts
// so far; the generator cannot be used again.
func (g *Generator) Run(ctx context.Context, limit Limit) (*Result, error) {
	if limit.Requests <= 0 && limit.Duration <= 0 {
		return nil, errors.New("load: the limit has neither requests nor a duration")
	}
	ctx, stop := g.guard(ctx, limit.Duration)
	defer stop()
	r := &run{start: time.Now(), limited: limit.Requests > 0}
	r.left.Store(limit.Requests)
	if limit.Duration > 0 {
		r.end = r.start.Add(limit.Duration)
	}
	counts := make([]count, len(g.callers))
	var wg sync.WaitGroup
	for i, c := range g.callers {
		wg.Go(func() { r.loop(ctx, c, &counts[i]) })
	}
	wg.Wait()
	return sum(counts, time.Since(r.start)), context.Cause(ctx)
}

// guard returns a context for a run of duration d (no limit when zero). The
// context ends when the server hangs, and the callers are then closed. Call the
// returned function when the run is over.
func (g *Generator) guard(ctx context.Context, d time.Duration) (context.Context, func()) {
	// A cancellation instead of a deadline: grpc-go would send a deadline to
	// the server with every request, and the server would set a timer for each.
	ctx, cancel := context.WithCancelCause(ctx)
	stopClosing := context.AfterFunc(ctx, func() { g.Close() })
	stopTimer := func() bool { return true }
	if d > 0 {
		hung := fmt.Errorf("load: a request had no answer %v after the end of the run", grace)
		stopTimer = time.AfterFunc(d+grace, func() { cancel(hung) }).Stop
	}
	return ctx, func() {
		stopTimer()
		stopClosing()
		cancel(nil)
	}
}

// A run is what the callers of one Run share.
type run struct {
	start, end time.Time // end is zero when only the requests are limited
	limited    bool
	left       atomic.Int64 // requests that no caller has taken yet, when limited
}

// A count is what one caller has seen. Each has its own, so that callers do not
// write to each other's memory.
type count struct {
	latency Histogram
	errors  map[string]int64
	first   error
}

// loop sends until the run is over.
func (r *run) loop(ctx context.Context, c Caller, n *count) {
	failures := 0
	for at := time.Now(); failures < giveUpAfter && ctx.Err() == nil; {
		if r.limited && r.left.Add(-1) < 0 {
			return
		}
		err := c.Do(ctx)
		now := time.Now()
		if err != nil {
			failures++
			n.fail(err)
		} else {
			failures = 0
			n.latency.Record(now.Sub(at))
		}
		if !r.end.IsZero() && !now.Before(r.end) {
			return
		}
		at = now
	}
}

func (n *count) fail(err error) {
	if n.errors == nil {
		n.errors = make(map[string]int64)
		n.first = err
	}
	n.errors[kindOf(err)]++
}

// sum adds up what the callers saw.
func sum(counts []count, elapsed time.Duration) *Result {
	r := &Result{Elapsed: elapsed, Errors: make(map[string]int64)}
	for i := range counts {
		n := &counts[i]
		r.Latency.Merge(&n.latency)
		for kind, c := range n.errors {
			r.Errors[kind] += c
		}
		if r.FirstError == nil {
			r.FirstError = n.first
		}
	}
	r.Requests = r.Latency.Count()
	return r
}
