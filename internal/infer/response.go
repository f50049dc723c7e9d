package infer

import (
	"time"

	"shoal/internal/tensor"
)

// A Response is a model's answer to one request. Its outputs are in memory of
// the instance that made them until Release.
type Response struct {
	Model   string
	Version int64
	Params  []Param
	Outputs []Output
	// Ordered means that the model chose the order of its outputs, and clients
	// get them in it. Otherwise outputs are sorted by name.
	Ordered bool
	// Borrowed means that outputs may be in the memory of the request's inputs,
	// which must then stay as long as the response.
	Borrowed bool

	// Err is set in a response of a Stream that is an error; it then has no
	// outputs.
	Err error
	// OutputStart is when a sender of a Stream had the result and began to make
	// the outputs; zero when that took no time.
	OutputStart time.Time

	owner Releaser
}

// An Output is one tensor of a response, in the form that Data describes.
type Output struct {
	Name  string
	Type  tensor.Type
	Shape tensor.Shape
	Data  []byte
	// Private is that of Data, for a model that gets the output as its input.
	Private bool
	// Index is the tensor's index among the model's outputs.
	Index int
	// Binary is copied from the request's Wanted.
	Binary bool
	// Placed means that the content was written to the client's memory; Data is
	// empty.
	Placed bool
}

// Own makes o the owner of the outputs' memory, which is released with the
// response. There can be only one.
func (r *Response) Own(o Releaser) {
	if r.owner != nil {
		panic("BUG: infer: the response already has an owner")
	}
	r.owner = o
}

// AddOutput appends an empty output and returns it. The pointer is valid until
// the next call. It keeps the capacity of an earlier shape, so that appending
// to it does not allocate.
func (r *Response) AddOutput() *Output {
	n := len(r.Outputs)
	if n < cap(r.Outputs) {
		r.Outputs = r.Outputs[:n+1]
		o := &r.Outputs[n]
		*o = Output{Shape: o.Shape[:0]}
		return o
	}
	r.Outputs = append(r.Outputs, Output{})
	return &r.Outputs[n]
}

// Release gives the outputs' memory back. It may be called more than once.
func (r *Response) Release() {
	if r.owner != nil {
		r.owner.Release()
		r.owner = nil
	}
	for i := range r.Outputs {
		r.Outputs[i].Data = nil
	}
	r.Outputs = r.Outputs[:0]
}

// Take returns the response, with the outputs' memory, as one of the caller's,
// and leaves r empty: for a response that is lent only for a call.
func (r *Response) Take() *Response {
	taken := *r
	*r = Response{Model: r.Model, Version: r.Version}
	return &taken
}

// size returns roughly how much memory the response uses.
func (r *Response) size() int64 {
	n := int64(responseOverhead)
	for i := range r.Outputs {
		n += int64(len(r.Outputs[i].Data))
	}
	return n
}

// responseOverhead is what a response uses in addition to its tensors, so that
// empty ones count too.
const responseOverhead = 512

func (r *Response) emptied() Response {
	clear(r.Params)
	return Response{Params: r.Params[:0], Outputs: r.Outputs[:0]}
}
