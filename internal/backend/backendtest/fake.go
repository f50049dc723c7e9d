package backendtest

import (
	"context"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// A Fake is a backend and a model in one, whose instances run a test's
// functions. The zero value answers every request at once, without outputs.
type Fake struct {
	// OnRun is called for each run; its error fails the batch. It may block.
	OnRun func(b *infer.Batch) error
	// OnOpen is called when a model is opened; its error fails that.
	OnOpen func(src backend.Source, host backend.Host) error

	mu     sync.Mutex // protects the fields below
	sizes  []int
	opened int
	closed int
}

// Name implements backend.Backend.
func (f *Fake) Name() string { return "fake" }

// Probe implements backend.Backend. The model fills in nothing.
func (f *Fake) Probe(src backend.Source) backend.Probed {
	return backend.Opener(func(_ context.Context, _ *modelpb.ModelConfig, _ *model.Signature, host backend.Host) (backend.Model, error) {
		if f.OnOpen != nil {
			if err := f.OnOpen(src, host); err != nil {
				return nil, err
			}
		}
		return f, nil
	})
}

// Start implements backend.Model.
func (f *Fake) Start(context.Context, backend.Placement) (backend.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return &FakeInstance{fake: f}, nil
}

// Close implements backend.Model.
func (f *Fake) Close() error { return nil }

// Sizes returns the rows of the batches that ran, in order.
func (f *Fake) Sizes() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.sizes...)
}

// Instances returns how many instances were started and how many closed.
func (f *Fake) Instances() (started, closed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened, f.closed
}

// A FakeInstance is an instance of a Fake.
type FakeInstance struct{ fake *Fake }

// Run implements backend.Instance.
func (in *FakeInstance) Run(b *infer.Batch) error {
	b.Times.InputsReady = time.Now()
	in.fake.mu.Lock()
	in.fake.sizes = append(in.fake.sizes, b.Rows)
	in.fake.mu.Unlock()
	defer func() { b.Times.OutputsOut = time.Now() }()
	if in.fake.OnRun == nil {
		return nil
	}
	return in.fake.OnRun(b)
}

// Close implements backend.Instance.
func (in *FakeInstance) Close() error {
	in.fake.mu.Lock()
	defer in.fake.mu.Unlock()
	in.fake.closed++
	return nil
}
