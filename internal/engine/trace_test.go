package engine

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/tensor"
	"shoal/internal/trace"
)

// kept is an exporter that keeps what it gets.
type kept struct {
	mu      sync.Mutex
	runs    []*trace.Run
	batches []*trace.Batch
}

func (k *kept) Trace(t *trace.Trace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs = append(k.runs, t.Runs()...)
}

func (k *kept) Batch(b *trace.Batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.batches = append(k.batches, b)
}

func (k *kept) Dropped() uint64 { return 0 }
func (k *kept) Close()          {}

func TestTracesOfManyCallersHaveTheirExecutions(t *testing.T) {
	c := trace.DefaultConfig()
	c.Mode, c.Level, c.Rate = trace.ModeOpenTelemetry, trace.Timestamps, 2
	got := new(kept)
	tracer, err := trace.Start(c, got, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	e, err := Start(t.Context(), Options{
		Repositories: []string{repo(t, map[string]string{
			"direct/config.pbtxt": oneInput, "direct/1/": "", "batched/config.pbtxt": batchedInput, "batched/1/": "",
		})},
		LoadThreads: 2, Backends: []backend.Backend{identity.Backend{}}, Tracer: tracer, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close(context.Background()) }()
	const callers, each = 8, 50
	var wg sync.WaitGroup
	for i := range callers {
		model := []string{"direct", "batched"}[i%2]
		wg.Go(func() {
			for range each {
				inferTraced(t, e, model)
			}
		})
	}
	wg.Wait()
	if want := callers * each / 2; len(got.runs) != want {
		t.Fatalf("got %d traces, want %d", len(got.runs), want)
	}
	linked := make(map[*trace.Run]bool)
	for _, b := range got.batches {
		if b.Model != "batched" || b.Requests < len(b.Runs) || b.Rows < b.Requests || b.Reason == "" {
			t.Errorf("got the batch %+v", b)
		}
		for _, r := range b.Runs {
			linked[r] = true
		}
	}
	for _, r := range got.runs {
		b := r.Batch
		if b == nil || linked[r] != (r.Model == "batched") {
			t.Fatalf("%s: got the execution %v and a span of the batch %v, want one, and that for batched ones", r.Model, b, linked[r])
		}
		order := []time.Time{r.Start, r.Queued, b.Start, b.InputsReady, b.OutputsOut, b.End, r.End}
		for i := 1; i < len(order); i++ {
			if order[i].Before(order[i-1]) {
				t.Errorf("%s: time %d is before the previous one: %v", r.Model, i, order)
			}
		}
	}
}

// inferTraced sends a model one row of two zeros, as a protocol does.
func inferTraced(t *testing.T, e *Engine, model string) {
	lease, err := e.Acquire(model, 1)
	if err != nil {
		t.Error(err)
		return
	}
	tr := e.Tracer().Sample(model, trace.HTTP, trace.Parent{}, time.Now())
	r := infer.NewRequest()
	r.Hold(lease)
	r.Trace = tr.First()
	*r.AddInput() = infer.Input{Name: "INPUT0", Type: tensor.FP32, Shape: append(r.Dims(2), 1, 2), Data: infer.Data{First: bytes.Clone(zeros[:])}}
	if err := lease.Infer(t.Context(), r); err != nil {
		t.Error(err)
	}
	r.Release()
	tr.End()
}
