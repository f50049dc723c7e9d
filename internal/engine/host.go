package engine

import (
	"context"

	"shoal/internal/infer"
)

// A host is the engine as seen by its models.
type host struct{ engine *Engine }

// Infer implements backend.Host.
func (h host) Infer(ctx context.Context, r *infer.Request) error {
	lease, err := h.engine.acquireCallee(r.Model, r.Version)
	if err != nil {
		r.Outcome = infer.Refused
		return err
	}
	r.Hold(lease)
	return lease.Infer(ctx, r)
}
