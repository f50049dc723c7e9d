package sched

import (
	"context"

	"shoal/internal/infer"
	"shoal/internal/status"
)

// ErrTimeout is the error of a request whose queue timeout has passed.
var ErrTimeout = status.Errorf(status.Unavailable, "Request timeout expired")

// fullQueue returns the error for a full level, with advice.
func (f *former) fullQueue(id string, p *QueuePolicy) error {
	return status.Errorf(status.Unavailable, "[request id: %s] Exceeds maximum queue size: %d requests wait for model '%s'; raise max_queue_size in its queue policy or add instances",
		id, p.MaxSize, f.name)
}

func stopping(r *infer.Request) error {
	return status.Errorf(status.Unavailable, "[request id: %s] Server is stopping, scheduler for model has stopped accepting new inference requests", idOf(r))
}

// cancelled returns why ctx ended, as an error with a code.
func cancelled(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return status.Wrap(status.DeadlineExceeded, ctx.Err(), "the request's deadline passed while it was queued")
	}
	return errWithdrawn
}

// errWithdrawn is the error of a request whose client is gone.
var errWithdrawn = status.Wrap(status.Cancelled, context.Canceled, "the request was cancelled while it was queued")

func idOf(r *infer.Request) string {
	if r.ID == "" {
		return noID
	}
	return r.ID
}

// noID stands for the id of a request that has none.
const noID = "<id_unknown>"
