package attack

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"shoal/bench/internal/ask"
	"shoal/internal/load"
)

// Good counts what became of the requests of well-behaved clients.
type Good struct {
	mu       sync.Mutex // protects the fields below
	latency  load.Histogram
	failed   int
	failures []string // the first few
}

// patience is how long a good client waits.
const patience = 20 * time.Second

// Ask has one client ask the model at a pace, as long as the context lasts. A
// request that is late is sent at once.
func (g *Good) Ask(ctx context.Context, every time.Duration, m ask.Model, send func(context.Context, ask.Question) error) {
	for next := time.Now(); ; next = later(next.Add(every)) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		// The last one is asked to its end.
		each, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		start := time.Now()
		err := send(each, ask.Question{Model: m, Number: number.Add(1)})
		g.note(time.Since(start), err)
		cancel()
	}
}

// number makes the questions of the process differ.
var number atomic.Uint32

func later(t time.Time) time.Time {
	if now := time.Now(); t.Before(now) {
		return now
	}
	return t
}

func (g *Good) note(d time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latency.Record(d)
	if err == nil {
		return
	}
	g.failed++
	if len(g.failures) < 5 {
		g.failures = append(g.failures, err.Error())
	}
}

// Summary returns how many requests there were, their latencies at p50, p99 and
// most, and the errors of those that failed.
func (g *Good) Summary() (count int64, p50, p99, most time.Duration, failed int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, text := range g.failures {
		errs = append(errs, errors.New(text))
	}
	return g.latency.Count(), g.latency.Quantile(0.5), g.latency.Quantile(0.99), g.latency.Max(), g.failed, errors.Join(errs...)
}
