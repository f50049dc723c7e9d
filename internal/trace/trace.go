// Package trace records the way of single requests through the server: when each was
// received, queued, run and answered and, if asked for, its tensors. A Tracer has the
// settings, which clients see and change while the server runs, and decides which
// requests are traced. What was recorded goes to a file in Triton's format, or to an
// Exporter.
//
// A protocol asks Tracer.Sample for a Trace, gives its Run to the request, and ends the
// trace once the answer is sent; the engine fills in the run. Most requests have no
// trace: all methods of Trace and Run do nothing on nil.
package trace

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A Level is what is recorded of a request; levels can be combined.
type Level uint8

// The levels.
const (
	Timestamps Level = 1 << iota
	Tensors
)

// A Protocol is how a request came; it decides the names of some events.
type Protocol uint8

// The protocols.
const (
	HTTP Protocol = iota
	GRPC
	Session // calls over shared memory
)

// A Trace is the record of one client call. It belongs to one goroutine at a time,
// except for Call.
type Trace struct {
	Protocol
	// Caller is the caller's own trace, which this one is then a part of.
	Caller Parent
	// TraceID and SpanID are this trace's identity for an Exporter.
	TraceID [16]byte
	SpanID  [8]byte
	// Received and Read are when the call was received and when all of it was read;
	// Answered and Sent are when its answer began to be sent and when that was done.
	// Both are zero when there was no answer to send.
	Received, Read, Answered, Sent time.Time
	// Err is why the call failed; empty when it did not.
	Err string
	// Run is the run of the model that the client asked for.
	Run Run

	level   Level
	tracer  *Tracer
	setting *setting

	mu    sync.Mutex // protects the field below
	calls []*Run
}

// A Run is the record of one model's work on a request.
type Run struct {
	ID, Parent uint64 // of runs; the parent is 0 when the client asked for it
	SpanID     [8]byte
	Model      string
	Version    int64
	RequestID  string
	// Start, Queued and End are when the request was accepted, queued and done;
	// zero when it did not get that far.
	Start, Queued, End time.Time
	// Batch is the execution that it was a part of; nil when no instance ran it.
	Batch *Batch
	Err   string

	trace *Trace
	text  []byte // its tensors, as they are written

	mu        sync.Mutex // protects the field below
	responses []time.Time
}

// A Batch is an execution of a model with traced requests in it.
type Batch struct {
	TraceID [16]byte
	SpanID  [8]byte
	Model   string
	Version int64
	// Start, InputsReady, OutputsOut and End are the times of the execution; the two
	// between are zero when nothing could be run.
	Start, InputsReady, OutputsOut, End time.Time
	Requests, Rows                      int
	Reason                              string // why it started; empty when the model does not batch
	Runs                                []*Run // the traced ones
	Err                                 string
}

// ReadDone records that the call was read completely.
func (t *Trace) ReadDone() {
	if t != nil {
		t.Read = time.Now()
	}
}

// Sending records that the answer is being sent. When it is sent in parts, the first
// counts.
func (t *Trace) Sending() {
	if t != nil && t.Answered.IsZero() {
		t.Answered = time.Now()
	}
}

// Fail records why the call failed.
func (t *Trace) Fail(err error) {
	if t != nil && err != nil {
		t.Err = status.Public(err)
	}
}

// End ends the trace and has it written. The trace must not be used after that.
func (t *Trace) End() {
	if t == nil {
		return
	}
	if !t.Answered.IsZero() {
		t.Sent = time.Now()
	}
	t.tracer.ended(t)
}

// First returns the run for the request that the client sent; nil for nil.
func (t *Trace) First() *Run {
	if t == nil {
		return nil
	}
	return &t.Run
}

// Runs returns all runs: the first and those that it called, the earliest first. The
// trace must have ended.
func (t *Trace) Runs() []*Run { return append([]*Run{&t.Run}, t.calls...) }

// Call returns the record for a request that the model sends to another one. It may be
// called by several goroutines.
func (r *Run) Call() *Run {
	c := r.Child()
	r.Adopt(c)
	return c
}

// Child is Call for a request that may outlive the trace: it becomes a part of it only by
// Adopt, which must not be called after the end of the trace, nor before that of the
// request.
func (r *Run) Child() *Run {
	if r == nil {
		return nil
	}
	t := r.trace.tracer
	return &Run{trace: r.trace, ID: t.nextID.Add(1), Parent: r.ID, SpanID: t.newSpanID()}
}

// Adopt makes a Child a part of the trace.
func (r *Run) Adopt(c *Run) {
	if r == nil || c == nil {
		return
	}
	r.trace.mu.Lock()
	r.trace.calls = append(r.trace.calls, c)
	r.trace.mu.Unlock()
}

// Traceparent returns the run as the W3C's trace context has it, for what the model itself
// calls; empty when the trace does not go to an Exporter.
func (r *Run) Traceparent() string {
	if r == nil || r.trace.tracer.exporter == nil {
		return ""
	}
	return fmt.Sprintf("00-%x-%x-01", r.trace.TraceID, r.SpanID)
}

// Begin records that a model accepted the request.
func (r *Run) Begin(model string, version int64, id string, at time.Time) {
	if r != nil {
		r.Model, r.Version, r.RequestID, r.Start = model, version, strings.Clone(id), at
	}
}

// Done records that the request is done, and why it failed if it did.
func (r *Run) Done(queued time.Time, err error) {
	if r == nil {
		return
	}
	r.Queued, r.End = queued, time.Now()
	if err != nil {
		r.Err = status.Public(err)
	}
}

// WantsTensors reports whether Input and Output record anything.
func (r *Run) WantsTensors() bool { return r != nil && r.trace.level&Tensors != 0 }

// Input records a tensor that the model gets.
func (r *Run) Input(name string, typ tensor.Type, shape tensor.Shape, data []byte) {
	if r.WantsTensors() {
		r.text = appendTensor(r.text, r.ID, "TENSOR_QUEUE_INPUT", name, typ, shape, data)
	}
}

// Output records a tensor that the model made.
func (r *Run) Output(name string, typ tensor.Type, shape tensor.Shape, data []byte) {
	if r.WantsTensors() {
		r.text = appendTensor(r.text, r.ID, "TENSOR_BACKEND_OUTPUT", name, typ, shape, data)
	}
}

// Responded records that the model gave a response. It may be called by several
// goroutines.
func (r *Run) Responded(at time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.responses = append(r.responses, at)
	r.mu.Unlock()
}

// Responses returns when the model gave its responses.
func (r *Run) Responses() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.responses) == 0 && r.Batch != nil && r.Err == "" {
		return []time.Time{r.Batch.End}
	}
	return r.responses
}

// TraceID returns the identity of the trace that the run is a part of.
func (r *Run) TraceID() [16]byte { return r.trace.TraceID }

// Add adds a traced request to the execution.
func (b *Batch) Add(r *Run) {
	r.Batch = b
	b.Runs = append(b.Runs, r)
}

// Done ends an execution with at least one traced request.
func (b *Batch) Done() {
	t := b.Runs[0].trace.tracer
	b.TraceID, b.SpanID = t.newTraceID(), t.newSpanID()
	if t.exporter != nil && b.Reason != "" {
		t.exporter.Batch(b)
	}
}
