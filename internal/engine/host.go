package engine

import (
	"context"

	"shoal/internal/infer"
)

// A host is the engine as seen by its models.
type host struct{ engine *Engine }

// Infer implements backend.Host.
func (h host) Infer(ctx context.Context, r *infer.Request) error {
	lease, err := h.acquire(r)
	if err != nil {
		return err
	}
	return lease.Infer(ctx, r)
}

// InferStream implements backend.Host.
func (h host) InferStream(ctx context.Context, r *infer.Request, each func(*infer.Response, bool) error) error {
	lease, err := h.acquire(r)
	if err != nil {
		return err
	}
	return lease.InferStream(ctx, r, each)
}

// acquire gives r a lease on the version that it names.
func (h host) acquire(r *infer.Request) (Lease, error) {
	lease, err := h.engine.acquireCallee(r.Model, r.Version)
	if err != nil {
		r.Outcome = infer.Refused
		return lease, err
	}
	r.Hold(lease)
	return lease, nil
}
