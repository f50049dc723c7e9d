// Package infer has the data types of inference: the request that every
// protocol decodes into, its response, and the batch that an instance runs.
//
// A request belongs to one goroutine at a time. Its strings and data may alias
// the memory that a protocol received it in; copy them to keep them longer than
// the request.
package infer

import (
	"context"
	"sync"
	"time"

	"shoal/internal/inflight"
	"shoal/internal/tensor"
	"shoal/internal/trace"
)

// LatestVersion asks for the highest version that is ready.
const LatestVersion = -1

// A Request is one client call. Protocols get one from NewRequest, fill it in,
// pass it to the engine and, once its Response is encoded, call Release.
type Request struct {
	// Fields that scheduler and instance write come first and together, on few
	// cache lines.

	// Rows is the size of the batch dimension, 1 for models without one. The
	// engine sets it when it has checked the request.
	Rows int
	// Err is set by an instance when this request alone failed in a batch.
	Err error
	// Queued is when the scheduler got the request.
	Queued time.Time
	// Started means, once the request has its answer, that an instance took it.
	Started bool
	// Outcome is the request's outcome.
	Outcome Outcome
	// Trace is the record of the request's way; nil when it is not traced.
	Trace *trace.Run

	// Spent, when set, gets the times of the request's execution.
	Spent *Spent

	// Entered, when set, is called once the scheduler has queued the request,
	// so that another can be sent after it. A refused request may never enter.
	Entered func()

	Model   string
	Version int64 // LatestVersion when the client names none
	ID      string
	Params  []Param // the model's; reserved ones have fields below

	Priority uint64        // 0 means the model's default level
	Timeout  time.Duration // 0 means none
	Sequence Sequence

	Inputs  []Input
	Outputs []Wanted // empty means all

	// Context is the context of the client's call: an instance that runs the
	// request can check whether the client still waits for the answer. Nil when
	// that is unknown. The engine sets it.
	Context context.Context

	Response Response
	// Stream takes the responses in place of Response when the model is
	// decoupled; nil otherwise. The engine sets it.
	Stream *Stream

	// Claim is the request's share of the memory budget. Memory that the
	// request itself provides counts there; a protocol may add its own.
	Claim inflight.Claim

	hold  Releaser
	kept  []Releaser
	dims  []int64 // the memory behind shapes made by Dims
	bytes []byte  // the memory behind data made by Grow

	_ [8]byte // pad to a size whose allocations begin at a cache line
}

// Sequence is the request's position in a sequence of related requests.
type Sequence struct {
	ID         uint64
	StringID   string
	Start, End bool
}

// An Input is one tensor of a request.
type Input struct {
	Name  string
	Type  tensor.Type
	Shape tensor.Shape
	Data  Data
	// From, when set, has the content instead of Data; the engine reads it
	// after checking the size.
	From Source
	// Index is the tensor's index among the model's inputs. The engine sets it
	// and sorts Inputs by it.
	Index int
}

// A Wanted is a requested output and its form.
type Wanted struct {
	Name string
	// Classes, when positive, asks for that many of the largest values instead
	// of the tensor.
	Classes int64
	// Binary asks for bytes rather than JSON over HTTP.
	Binary bool
	// To, when set, gets the content instead of the answer.
	To Sink
}

// A Source is memory outside the request that has the content of an input.
type Source interface {
	Size() uint64
	// Read fills b, which has that size.
	Read(b []byte) error
}

// A Sink is memory outside the request that takes the content of an output.
type Sink interface {
	Write(output string, b []byte) error
}

// A Releaser takes back something that was lent until the call.
type Releaser interface{ Release() }

var requests = sync.Pool{New: func() any { return new(Request) }}

// NewRequest returns an empty request. Release gives it back.
func NewRequest() *Request {
	r := requests.Get().(*Request)
	r.Version = LatestVersion
	return r
}

// Hold lends h to the request until Release. There can be only one.
func (r *Request) Hold(h Releaser) {
	if r.hold != nil {
		panic("BUG: infer: the request already holds something")
	}
	r.hold = h
}

// Keep lends h to the request until Release, in addition to Hold.
func (r *Request) Keep(h Releaser) { r.kept = append(r.kept, h) }

// Release gives back the response's memory, what was lent to the request, and
// the request itself, which the caller must not use again.
func (r *Request) Release() {
	r.Response.Release()
	if r.hold != nil {
		r.hold.Release()
	}
	for _, h := range r.kept {
		h.Release()
	}
	r.Claim.Release()
	clear(r.kept)
	clear(r.Params)
	clear(r.Inputs)
	clear(r.Outputs)
	*r = Request{
		Params:   r.Params[:0],
		Inputs:   r.Inputs[:0],
		Outputs:  r.Outputs[:0],
		Response: r.Response.emptied(),
		kept:     r.kept[:0],
		dims:     r.dims[:0],
		bytes:    r.bytes[:0],
	}
	if cap(r.bytes) > maxKeptBytes {
		r.bytes = nil
	}
	if cap(r.dims) > maxKeptDims || cap(r.Inputs) > maxKeptTensors || cap(r.Outputs) > maxKeptTensors || cap(r.kept) > maxKeptTensors {
		return // the garbage collector takes an unusually large one
	}
	requests.Put(r)
}

// The most that a pooled request keeps for its next use. A larger one came from
// an unusual client and would only waste memory.
const (
	maxKeptBytes   = 1 << 20
	maxKeptDims    = 1 << 10
	maxKeptTensors = 1 << 8
)

// Dims returns an empty shape with capacity for n dimensions, in memory of the
// request that is valid until Release.
func (r *Request) Dims(n int) tensor.Shape {
	if cap(r.dims)-len(r.dims) < n {
		r.dims = make([]int64, 0, max(64, 2*cap(r.dims), n))
		if cap(r.dims) > maxKeptDims {
			r.Claim.Force(8 * int64(cap(r.dims)))
		}
	}
	start := len(r.dims)
	r.dims = r.dims[:start+n]
	return tensor.Shape(r.dims[start : start : start+n])
}

// Grow returns n bytes of undefined content, in memory of the request that is
// valid until Release, whether they fit the memory budget or not.
func (r *Request) Grow(n int) []byte {
	if add := r.missing(n); add > 0 {
		r.Claim.Force(int64(add))
	}
	return r.grow(n)
}

// GrowWithin is Grow for sizes that a client chooses: it waits for memory and
// fails when the budget has none.
func (r *Request) GrowWithin(n int) ([]byte, error) {
	if add := r.missing(n); add > 0 {
		if err := r.Claim.Acquire(int64(add)); err != nil {
			return nil, err
		}
	}
	return r.grow(n), nil
}

// missing returns how much of n more bytes is not claimed yet: new memory, or
// memory kept from an earlier request and used for the first time.
func (r *Request) missing(n int) int {
	switch {
	case n == 0:
		return 0
	case cap(r.bytes)-len(r.bytes) < n:
		return r.nextSize(n)
	case len(r.bytes) == 0:
		return cap(r.bytes)
	}
	return 0
}

// nextSize returns how much memory to allocate for n bytes. After a large
// tensor the next allocation need not be twice as large.
func (r *Request) nextSize(n int) int { return max(4096, min(2*cap(r.bytes), maxKeptBytes), n) }

func (r *Request) grow(n int) []byte {
	if cap(r.bytes)-len(r.bytes) < n {
		r.bytes = make([]byte, 0, r.nextSize(n))
	}
	start := len(r.bytes)
	r.bytes = r.bytes[:start+n]
	return r.bytes[start : start+n : start+n]
}

// ClaimEntry claims the memory for one more element of a list of the request,
// such as Inputs, when that list is unusually long. It fails when the budget
// has no room for it.
func (r *Request) ClaimEntry(length int) error {
	// A list that grows is copied to twice its size.
	if length < maxKeptTensors || length&(length-1) != 0 {
		return nil
	}
	const entry = 192 // roughly
	return r.Claim.Acquire(2 * entry * int64(length))
}

// AddInput appends an empty input and returns it. The pointer is valid until
// the next call.
func (r *Request) AddInput() *Input {
	r.Inputs = append(r.Inputs, Input{})
	return &r.Inputs[len(r.Inputs)-1]
}
