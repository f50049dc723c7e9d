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
	// Do runs r and returns when it has its Response or its error. While r is
	// queued, the end of ctx takes it out of the queue; once it runs, Do waits
	// for it. Whatever Do returns, the caller owns r again.
	Do(ctx context.Context, r *infer.Request) error

	// Hurry makes requests, including later ones, wait only for instances and
	// no longer for others to join their batch.
	Hurry()

	// Close refuses new requests and returns when the accepted ones have their
	// answers.
	Close()

	// Add gives the scheduler more instances, which stay the caller's.
	Add(instances ...backend.Instance) error

	// Remove removes an instance and returns when it has ended its batch.
	// Waiting requests stay for the other instances.
	Remove(instance backend.Instance)
}

// A Recorder records every execution. It must not keep the batch.
type Recorder interface {
	// Started reports that an instance took the batch.
	Started(b *infer.Batch)
	// Executed reports that a batch ran, with its times set; err is set when
	// the whole batch failed.
	Executed(b *infer.Batch, err error)
}
