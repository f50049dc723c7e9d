package engine

import (
	"context"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// A host is the engine as seen by its models.
type host struct{ engine *Engine }

// Infer implements backend.Host.
func (h host) Infer(ctx context.Context, r *infer.Request) error {
	lease, done, err := h.acquire(ctx, r)
	if err != nil {
		return err
	}
	if done != nil {
		defer done()
	}
	return lease.Infer(ctx, r)
}

// InferStream implements backend.Host.
func (h host) InferStream(ctx context.Context, r *infer.Request, each func(*infer.Response, bool) error) error {
	lease, done, err := h.acquire(ctx, r)
	if err != nil {
		return err
	}
	if done != nil {
		defer done()
	}
	return lease.InferStream(ctx, r, each)
}

// acquire gives r a lease on the version that it names. If an instance waits for
// the answer, that is recorded until done is called.
func (h host) acquire(ctx context.Context, r *infer.Request) (_ Lease, done func(), _ error) {
	lease, err := h.engine.acquireCallee(r.Model, r.Version)
	if err != nil {
		r.Outcome = infer.Refused
		return lease, nil, err
	}
	r.Hold(lease)
	holder := backend.HolderOf(ctx)
	if holder == nil || lease.ensemble != nil { // the steps of an ensemble wait themselves
		return lease, nil, nil
	}
	n := node{lease.id, lease.number}
	if err := h.engine.waits.begin(holder, n, h.engine.instances); err != nil {
		r.Outcome = infer.Refused
		return lease, nil, err
	}
	return lease, func() { h.engine.waits.end(holder, n) }, nil
}

// instances returns how many instances a version has.
func (e *Engine) instances(n node) int {
	m := (*e.models.Load())[n.model]
	if m == nil {
		return 0
	}
	v := m.entry.Load().loadedVersion(n.version)
	if v == nil {
		return 0
	}
	return v.active()
}

// Decoupled implements backend.Host.
func (h host) Decoupled(model string, version int64) (decoupled, ready bool) {
	lease, err := h.engine.acquireCallee(model, version)
	if err != nil {
		return false, false
	}
	defer lease.Release()
	return lease.decoupled, true
}

// Load implements backend.Host.
func (h host) Load(ctx context.Context, model, config string, files map[string][]byte) error {
	return h.engine.Load(ctx, model, Override{Config: config, Files: files})
}

// Unload implements backend.Host.
func (h host) Unload(ctx context.Context, model string, dependents bool) error {
	return h.engine.Unload(ctx, model, dependents)
}
