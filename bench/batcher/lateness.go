package main

import (
	"context"
	"sync"
	"time"

	"shoal/internal/infer"
	"shoal/internal/load"
	"shoal/internal/sched"
)

// The load beside which delays are waited out: callers of another batcher in the
// same process whose model keeps a core busy for a while.
const (
	loadCallers = 16
	loadBatch   = 100 * time.Microsecond
)

// measureLateness lets lone requests wait out the queue delay and says how long
// after its end they started, beside a load of so many callers.
func measureLateness(ctx context.Context, o options, loaders int) (lateness, error) {
	starts := &startTimes{}
	b, err := startBatcher(o.delay, instant{}, starts)
	if err != nil {
		return lateness{}, err
	}
	defer b.Close()
	stop, err := startLoad(ctx, loaders)
	if err != nil {
		return lateness{}, err
	}
	late, err := waitOut(ctx, o, b, starts)
	stop()
	if err != nil {
		return lateness{}, err
	}
	return lateness{
		Callers: loaders,
		P50:     micros(late.Quantile(0.5)), P95: micros(late.Quantile(0.95)), P99: micros(late.Quantile(0.99)), Max: micros(late.Max()),
	}, nil
}

func waitOut(ctx context.Context, o options, b *sched.Batcher, starts *startTimes) (*load.Histogram, error) {
	late, r := &load.Histogram{}, newRequest()
	for range o.waits {
		time.Sleep(o.pause)
		if err := b.Do(ctx, r); err != nil {
			return nil, err
		}
		late.Record(starts.last.Sub(r.Queued) - o.delay)
	}
	return late, nil
}

// startTimes remembers when the last batch started. It is for one caller.
type startTimes struct{ last time.Time }

func (s *startTimes) Started(b *infer.Batch) { s.last = b.Times.Start }

func (*startTimes) Executed(*infer.Batch, error) {}

// startLoad keeps callers busy until the returned function is called, which
// returns when they have ended.
func startLoad(ctx context.Context, n int) (stop func(), err error) {
	if n == 0 {
		return func() {}, nil
	}
	b, err := startBatcher(0, busy{loadBatch}, &counter{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			r := newRequest()
			for ctx.Err() == nil {
				_ = b.Do(ctx, r) // fails only at the end
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
		b.Close()
	}, nil
}

// busy is a model that keeps a core busy for a while.
type busy struct{ d time.Duration }

func (m busy) Run(*infer.Batch) error {
	for end := time.Now().Add(m.d); time.Now().Before(end); {
	}
	return nil
}

func (busy) Close() error { return nil }
