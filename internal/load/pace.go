package load

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Pace says when the requests of an open loop are due: Rate per second,
// evenly spaced, for Duration, whatever the server does.
type Pace struct {
	Rate     float64
	Duration time.Duration
}

// A PacedResult is the outcome of an open loop.
type PacedResult struct {
	// Due is how many requests were due. All of them were sent.
	Due     int64
	Elapsed time.Duration
	// Good has the latency of good answers, from when their requests were due:
	// what a user waits.
	Good Histogram
	// Failed has the others by kind, as in Result.Errors, from when they were
	// sent: how long the server took to refuse.
	Failed map[string]*Histogram
	// Late is how late requests were sent. When it is not small there were too
	// few callers, or the machine was too slow, to keep the pace.
	Late Histogram
	// FirstError is one of the errors of the run, nil when there were none.
	FirstError error
}

// Goodput returns the good answers per second.
func (r *PacedResult) Goodput() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Good.Count()) / r.Elapsed.Seconds()
}

// RunPaced generates load in an open loop and returns when every request has
// its answer. The next free caller takes the next due request, so there must be
// more callers than requests in flight. When ctx ends or the server hangs, it
// does as Run does.
func (g *Generator) RunPaced(ctx context.Context, p Pace) (*PacedResult, error) {
	due := math.Ceil(p.Rate * p.Duration.Seconds())
	if !(due >= 1) || due > math.MaxInt32 { // or NaN
		return nil, errors.New("load: the pace asks for no requests, or for too many")
	}
	ctx, stop := g.guard(ctx, p.Duration)
	defer stop()
	r := &paced{start: time.Now(), gap: float64(time.Second) / p.Rate, due: int64(due)}
	counts := make([]pacedCount, len(g.callers))
	var wg sync.WaitGroup
	for i, c := range g.callers {
		wg.Go(func() { r.loop(ctx, c, &counts[i]) })
	}
	wg.Wait()
	return r.sum(counts, time.Since(r.start)), context.Cause(ctx)
}

// A paced run is what the callers of one RunPaced share.
type paced struct {
	start time.Time
	gap   float64 // nanoseconds from one request to the next
	due   int64
	taken atomic.Int64
}

// A pacedCount is what one caller has seen.
type pacedCount struct {
	good, late Histogram
	failed     map[string]*Histogram
	first      error
}

// loop sends requests when they are due until there are no more.
func (r *paced) loop(ctx context.Context, c Caller, n *pacedCount) {
	for ctx.Err() == nil {
		i := r.taken.Add(1) - 1
		if i >= r.due {
			return
		}
		due := r.start.Add(time.Duration(float64(i) * r.gap))
		time.Sleep(time.Until(due))
		sent := time.Now()
		err := c.Do(ctx)
		now := time.Now()
		n.late.Record(sent.Sub(due))
		if err == nil {
			n.good.Record(now.Sub(due))
		} else {
			n.fail(err, now.Sub(sent))
		}
	}
}

func (n *pacedCount) fail(err error, took time.Duration) {
	if n.failed == nil {
		n.failed, n.first = make(map[string]*Histogram), err
	}
	kind := kindOf(err)
	if n.failed[kind] == nil {
		n.failed[kind] = new(Histogram)
	}
	n.failed[kind].Record(took)
}

// sum adds up what the callers saw.
func (r *paced) sum(counts []pacedCount, elapsed time.Duration) *PacedResult {
	out := &PacedResult{Due: r.due, Elapsed: elapsed, Failed: make(map[string]*Histogram)}
	for i := range counts {
		n := &counts[i]
		out.Good.Merge(&n.good)
		out.Late.Merge(&n.late)
		for kind, h := range n.failed {
			if out.Failed[kind] == nil {
				out.Failed[kind] = new(Histogram)
			}
			out.Failed[kind].Merge(h)
		}
		if out.FirstError == nil {
			out.FirstError = n.first
		}
	}
	return out
}
