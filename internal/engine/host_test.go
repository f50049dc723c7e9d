package engine

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/backendtest"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A caller is a backend whose models answer with what another model answers to
// them.
type caller struct {
	backendtest.Fake
	host    backend.Host
	to      string        // the other model
	outcome infer.Outcome // of the last request to it
}

func newCaller(to string) *caller {
	c := &caller{to: to}
	c.OnOpen = func(_ backend.Source, host backend.Host) error { c.host = host; return nil }
	c.OnRun = func(b *infer.Batch) error { return c.call(b.Requests[0]) }
	return c
}

func (c *caller) call(r *infer.Request) error {
	inner := infer.NewRequest()
	inner.Model = c.to
	input := r.Inputs[0]
	input.Name = "INPUT0"
	inner.Inputs = append(inner.Inputs, input)
	err := c.host.Infer(r.Context, inner)
	c.outcome = inner.Outcome
	if err != nil {
		inner.Release()
		return err
	}
	got := inner.Response.Outputs[0]
	out := r.Response.AddOutput()
	out.Name, out.Type, out.Data = "OUT", got.Type, got.Data
	out.Shape = append(out.Shape, got.Shape...) // a pooled request keeps the memory of its shapes
	r.Response.Own(inner)                       // the outputs lie in its memory
	return nil
}

// startCaller serves the model "m", which calls c.to, and the model "one".
func startCaller(t *testing.T, c *caller) *Engine {
	t.Helper()
	e, err := Start(t.Context(), Options{
		Repositories: []string{repo(t, map[string]string{
			"m/config.pbtxt": fakeModel, "m/1/": "", "one/config.pbtxt": oneInput, "one/1/": "",
		})},
		LoadThreads: 1, Backends: []backend.Backend{c, identity.Backend{}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func TestAModelCallsAnotherThroughItsHost(t *testing.T) {
	c := newCaller("one")
	e := startCaller(t, c)
	outer, err := e.Acquire("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	r.Hold(outer)
	r.Inputs = append(r.Inputs, in("IN", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
	if err := outer.Infer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := string(r.Response.Outputs[0].Data); got != eightBytes || c.outcome != infer.Answered {
		t.Errorf("got %x with outcome %d, want the input and %d", got, c.outcome, infer.Answered)
	}
	inner, err := e.find("one", 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := inner.leases.count(); n != 1 {
		t.Errorf("got %d leases on the called model, want 1 while its answer is in use", n)
	}
	r.Release()
	if n := inner.leases.count(); n != 0 {
		t.Errorf("got %d leases on the called model, want none after the answer", n)
	}
	if got := inner.snapshot().Success.Count; got != 1 {
		t.Errorf("got %d requests counted for the called model, want 1", got)
	}
}

func TestACallToAnUnknownModelIsRefused(t *testing.T) {
	c := newCaller("nobody")
	e := startCaller(t, c)
	v, err := e.find("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	err = ask(t.Context(), v, 1)
	if status.CodeOf(err) != status.NotFound || !strings.Contains(err.Error(), "'nobody'") || c.outcome != infer.Refused {
		t.Errorf("got %v with outcome %d, want NotFound with the name and %d", err, c.outcome, infer.Refused)
	}
}
