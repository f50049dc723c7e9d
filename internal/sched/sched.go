// Package sched decides which requests run together, when and on which
// instance. A scheduler is started for each loaded version of a model and lives
// as long as it; its methods may be called from many goroutines.
package sched

import (
	"context"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// A Scheduler runs requests on the instances of one model.
type Scheduler interface {
	// Do runs r and returns when its Response or its error is there. While r
	// is queued, the end of ctx takes it out of the queue; once it runs, Do
	// waits for it. Whatever Do returns, the caller owns r again.
	Do(ctx context.Context, r *infer.Request) error

	// Hurry has requests, those that come later too, wait for instances only and
	// no longer for company.
	Hurry()

	// Close refuses new requests and returns when those that were taken have
	// their answers.
	Close()

	// Add gives the scheduler more instances, which stay the caller's.
	Add(instances ...backend.Instance) error

	// Remove takes an instance out and returns when it has ended the batch that
	// it runs. Requests that wait stay for the other instances.
	Remove(instance backend.Instance)
}

// A Recorder is told of every execution. It must not keep the batch.
type Recorder interface {
	// Started reports that an instance took the batch.
	Started(b *infer.Batch)
	// Executed reports that a batch ran, with its times set; err is what
	// failed all of it, if anything did.
	Executed(b *infer.Batch, err error)
}
