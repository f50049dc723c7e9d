// Package infer has the nouns of inference: the request that every protocol
// decodes into, its response, and the batch that an instance runs.
//
// A request belongs to one goroutine at a time. Its strings and data may alias
// the memory a protocol received it in; whoever keeps one beyond the request's
// life copies it.
package infer

import (
	"context"
	"sync"
	"time"

	"shoal/internal/inflight"
	"shoal/internal/tensor"
)

// LatestVersion asks for the highest version that is ready.
const LatestVersion = -1

// A Request is one client call. Protocols get one from NewRequest, fill it in,
// hand it to the engine and, once its Response is encoded, call Release.
type Request struct {
	// What scheduler and instance write comes first and together, in few lines
	// of the cache.

	// Rows is the size of the batch dimension, 1 for models without one. The
	// engine sets it when it has checked the request.
	Rows int
	// Err is set by an instance when this request alone failed in a batch.
	Err error
	// Queued is when the scheduler was given the request.
	Queued time.Time
	// Started says, once the request has its answer, that an instance took it.
	Started bool
	// Outcome says what became of the request.
	Outcome Outcome

	// Entered, when it is set, is called once the scheduler has the request in
	// its queue, so that another can be sent after it. A request that is
	// refused may never enter.
	Entered func()

	Model   string
	Version int64 // LatestVersion when the client names none
	ID      string
	Params  []Param // those that the model is given; reserved ones have fields below

	Priority uint64        // 0 means the model's default level
	Timeout  time.Duration // 0 means none
	Sequence Sequence

	Inputs  []Input
	Outputs []Wanted // empty means all

	// Context is that of the client's call: an instance that runs the request
	// may look whether anybody still waits for the answer. Nil when nobody can
	// tell. The engine sets it.
	Context context.Context

	Response Response
	// Stream takes the responses in place of Response when the model is
	// decoupled; nil otherwise. The engine sets it.
	Stream *Stream

	// Claim is what the request holds of the memory budget. Memory that the
	// request itself lends counts there; a protocol may add its own.
	Claim inflight.Claim

	hold  Releaser
	kept  []Releaser
	dims  []int64 // the memory behind shapes made by Dims
	bytes []byte  // the memory behind data made by Grow

	_ [24]byte // up to a size whose memory begins with a line of the cache
}

// Sequence says where in a sequence of related requests this one stands.
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
	// From, when it is set, has the content instead of Data; the engine reads
	// it once it knows that the size is right.
	From Source
	// Index is the tensor's place among the model's inputs. The engine sets it
	// and orders Inputs by it.
	Index int
}

// A Wanted names an output that the client asked for and the form it wants.
type Wanted struct {
	Name string
	// Classes, when positive, asks for the so many largest values in place of
	// the tensor.
	Classes int64
	// Binary asks an HTTP front for bytes rather than JSON.
	Binary bool
	// To, when it is set, gets the content instead of the answer.
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

// NewRequest returns an empty request. It is taken back by Release.
func NewRequest() *Request {
	r := requests.Get().(*Request)
	r.Version = LatestVersion
	return r
}

// Hold lends h to the request until Release. There can be one only.
func (r *Request) Hold(h Releaser) {
	if r.hold != nil {
		panic("BUG: infer: the request already holds something")
	}
	r.hold = h
}

// Keep lends h to the request until Release, besides what Hold lends.
func (r *Request) Keep(h Releaser) { r.kept = append(r.kept, h) }

// Release gives back the response's memory, what the request holds and the
// request itself, which the caller must not touch again.
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
		return // an unusually large one is left to the garbage collector
	}
	requests.Put(r)
}

// What a pooled request keeps for its next use. A larger one came from an
// unusual client and would only hold memory.
const (
	maxKeptBytes   = 1 << 20
	maxKeptDims    = 1 << 10
	maxKeptTensors = 1 << 8
)

// Dims returns an empty shape with room for n dimensions, in memory of the
// request that stays valid until Release.
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

// Grow returns n bytes of undefined content in memory of the request that
// stays valid until Release, whether they fit the memory budget or not.
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

// missing returns how much n bytes more will take that was not claimed: memory
// that is made, or kept from an earlier request and used for the first time.
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

// nextSize returns the size of the memory to be made for n bytes. After a large
// tensor the next need not be twice as large.
func (r *Request) nextSize(n int) int { return max(4096, min(2*cap(r.bytes), maxKeptBytes), n) }

func (r *Request) grow(n int) []byte {
	if cap(r.bytes)-len(r.bytes) < n {
		r.bytes = make([]byte, 0, r.nextSize(n))
	}
	start := len(r.bytes)
	r.bytes = r.bytes[:start+n]
	return r.bytes[start : start+n : start+n]
}

// ClaimEntry claims the memory for one more entry of a list of the request's,
// such as Inputs, when that list is unusually long. It fails when the budget has
// no room for it.
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
