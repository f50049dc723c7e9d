package infer

import (
	"sync/atomic"
	"time"
)

// A Batch is the requests that an instance runs together. It belongs to the
// scheduler; an instance may use it only during Run.
type Batch struct {
	Requests []*Request
	Rows     int // the sum of the requests' rows
	Reason   Reason
	Times    Times
	// Turn is nil except for an instance that gets batches while it runs
	// another.
	Turn Turn
}

// A Turn is a batch's position among those that an instance has been given. The
// scheduler makes it.
type Turn interface {
	// Come reports whether the earlier batches had run when the batch was
	// given to the instance.
	Come() bool
	// Await returns when the earlier batches have run. An instance calls it
	// when the inputs are ready.
	Await()
}

// A Reason is why a batch started when it did.
type Reason uint8

// The reasons.
const (
	ReasonIdle      Reason = iota // it did not have to wait
	ReasonPreferred               // it had a preferred size, or the next request would exceed the largest one
	ReasonFull                    // it had the model's maximum of rows, or the next request could not join it
	ReasonDelay                   // its oldest request had waited long enough
	ReasonCount                   // the number of reasons
)

var reasonNames = [ReasonCount]string{"idle", "preferred", "full", "delay"}

// String returns the reason's name in metrics.
func (r Reason) String() string { return reasonNames[r] }

// Times are the times of an execution, for statistics. The scheduler sets Start
// and End, the instance the two between, unless no request could run.
type Times struct {
	Start       time.Time // the instance runs only this batch from here on
	InputsReady time.Time // the inputs are gathered
	OutputsOut  time.Time // the model has run; outputs are being distributed
	End         time.Time
}

// Spent adds up the times of executions, such as those of an ensemble's steps.
// It may be used from many goroutines.
type Spent struct{ queue, input, infer, output atomic.Int64 }

// Add adds the times of one execution, before which the request waited.
func (s *Spent) Add(queue time.Duration, t *Times) {
	s.queue.Add(int64(queue))
	s.input.Add(int64(t.InputsReady.Sub(t.Start)))
	s.infer.Add(int64(t.OutputsOut.Sub(t.InputsReady)))
	s.output.Add(int64(t.End.Sub(t.OutputsOut)))
}

// Queue returns how long the request waited in queues.
func (s *Spent) Queue() time.Duration { return time.Duration(s.queue.Load()) }

// Compute returns how long instances worked on the request.
func (s *Spent) Compute() time.Duration {
	return time.Duration(s.input.Load() + s.infer.Load() + s.output.Load())
}

// Times returns the sums as the times of one execution that began at start.
func (s *Spent) Times(start time.Time) Times {
	t := Times{Start: start}
	t.InputsReady = t.Start.Add(time.Duration(s.input.Load()))
	t.OutputsOut = t.InputsReady.Add(time.Duration(s.infer.Load()))
	t.End = t.OutputsOut.Add(time.Duration(s.output.Load()))
	return t
}

// Reset sets the sums to zero.
func (s *Spent) Reset() {
	s.queue.Store(0)
	s.input.Store(0)
	s.infer.Store(0)
	s.output.Store(0)
}
