package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/load"
	"shoal/internal/model"
	"shoal/internal/sched"
	"shoal/internal/tensor"
)

// maxRows is the model's max_batch_size.
const maxRows = 32

var callerCounts = []int{1, 16, 256}

// once is what one round at one number of callers came to.
type once struct {
	CPU       float64 `json:"cpu_ns"` // of the process, for one request
	Allocs    float64 `json:"allocs"` // for one request
	MeanBatch float64 `json:"mean_batch"`
}

// measureCosts goes through all numbers of callers in every round, so that the
// machine's moods hit all of them.
func measureCosts(ctx context.Context, o options) ([]cost, error) {
	rounds := make([][]once, len(callerCounts))
	for round := range o.rounds {
		for i, callers := range callerCounts {
			got, err := measureCost(ctx, callers, o.requests)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], got)
			fmt.Fprintf(os.Stderr, "round %d/%d %3d callers: %5.0f ns, %.3f allocations, mean batch %.1f\n", round+1, o.rounds, callers, got.CPU, got.Allocs, got.MeanBatch)
		}
	}
	var costs []cost
	for i, callers := range callerCounts {
		costs = append(costs, summarise(callers, rounds[i]))
	}
	return costs, nil
}

// measureCost sends requests through a batcher, each caller waiting for its
// answer before it sends again.
func measureCost(ctx context.Context, callers, requests int) (once, error) {
	counts := &counter{}
	b, err := startBatcher(0, instant{}, counts)
	if err != nil {
		return once{}, err
	}
	defer b.Close()
	c := startCallers(ctx, b, callers, requests)
	before, err := read(counts)
	if err != nil {
		return once{}, errors.Join(err, c.finish())
	}
	if err := c.finish(); err != nil {
		return once{}, err
	}
	after, err := read(counts)
	n := float64(requests)
	return once{
		CPU:       float64(after.cpu-before.cpu) / n,
		Allocs:    float64(after.mallocs-before.mallocs) / n,
		MeanBatch: n / float64(after.batches-before.batches),
	}, err
}

// A reading is what has been counted so far.
type reading struct {
	cpu     time.Duration
	mallocs uint64
	batches int64
}

func read(c *counter) (reading, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	cpu, err := load.Watch(os.Getpid()).CPU()
	return reading{cpu, m.Mallocs, c.batches.Load()}, err
}

// callers are goroutines that send requests.
type callers struct {
	begin chan struct{}
	done  sync.WaitGroup
	errs  chan error
}

// startCallers returns n callers that have sent some requests, so that pools and
// stacks have grown, and will send the given number between them.
func startCallers(ctx context.Context, b *sched.Batcher, n, requests int) *callers {
	const warmup = 100
	c := &callers{begin: make(chan struct{}), errs: make(chan error, n)}
	var warm sync.WaitGroup
	warm.Add(n)
	for i := range n {
		share := requests / n
		if i < requests%n {
			share++
		}
		c.done.Go(func() {
			// Each has a context of its own, as the connections of a server have.
			ctx := infer.NewCaller(ctx)
			defer ctx.Leave()
			r := newRequest()
			err := repeat(ctx, b, r, warmup)
			warm.Done()
			<-c.begin
			if err == nil {
				err = repeat(ctx, b, r, share)
			}
			if err != nil {
				c.errs <- err
			}
		})
	}
	warm.Wait()
	return c
}

// finish lets the callers go and waits for them. It returns one of their errors.
func (c *callers) finish() error {
	close(c.begin)
	c.done.Wait()
	select {
	case err := <-c.errs:
		return err
	default:
		return nil
	}
}

func repeat(ctx context.Context, b *sched.Batcher, r *infer.Request, n int) error {
	for range n {
		if err := b.Do(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func newRequest() *infer.Request {
	r := infer.NewRequest()
	r.Rows = 1
	return r
}

// startBatcher returns a batcher over one instance of a model of one small input,
// by Triton's rules if there is a delay and without settings otherwise.
func startBatcher(delay time.Duration, instance backend.Instance, record sched.Recorder) (*sched.Batcher, error) {
	var policy sched.Policy = sched.NewAuto(maxRows)
	if delay > 0 {
		policy = &sched.Triton{MaxRows: maxRows, Preferred: []int{maxRows}, Delay: delay}
	}
	return sched.StartBatcher(sched.BatcherConfig{
		Policy: policy,
		Levels: []sched.QueuePolicy{{}},
		Signature: &model.Signature{
			Name: "instant", MaxBatch: maxRows, Required: 1,
			Inputs: []model.Tensor{{Name: "INPUT0", Type: tensor.FP32, Dims: tensor.Shape{16}}},
		},
	}, []backend.Instance{instance}, record)
}

// instant is a model that takes no time.
type instant struct{}

func (instant) Run(*infer.Batch) error { return nil }
func (instant) Close() error           { return nil }

// A counter counts the batches that ran.
type counter struct{ batches atomic.Int64 }

func (c *counter) Started(*infer.Batch) {}

func (c *counter) Executed(*infer.Batch, error) { c.batches.Add(1) }
