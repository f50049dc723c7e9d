package infer

import (
	"time"

	"shoal/internal/tensor"
)

// A Response is what a model answered to one request. Its outputs lie in memory
// of the instance that made them until Release.
type Response struct {
	Model   string
	Version int64
	Params  []Param
	Outputs []Output
	// Ordered says that the model chose the order of its outputs, and clients get
	// them in it. Those of other models come in the order of their names.
	Ordered bool

	// Err is set in a response of a Stream that is an error, and has no
	// outputs then.
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
	// Index is the tensor's place among the model's outputs.
	Index int
	// Binary is copied from the request's Wanted.
	Binary bool
	// Placed says that the content went where the client wanted it; Data is
	// empty.
	Placed bool
}

// Own makes o the lender of the outputs' memory, to be released with the
// response. There can be one only.
func (r *Response) Own(o Releaser) {
	if r.owner != nil {
		panic("BUG: infer: the response already has an owner")
	}
	r.owner = o
}

// AddOutput appends an empty output and returns it. The pointer is valid until
// the next call. A shape left over from an earlier use is kept, emptied, so
// that appending to it needs no memory.
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

// size returns roughly what the response keeps in memory.
func (r *Response) size() int64 {
	n := int64(responseOverhead)
	for i := range r.Outputs {
		n += int64(len(r.Outputs[i].Data))
	}
	return n
}

// responseOverhead is what a response takes besides its tensors' bytes, so that
// empty ones count too.
const responseOverhead = 512

func (r *Response) emptied() Response {
	clear(r.Params)
	return Response{Params: r.Params[:0], Outputs: r.Outputs[:0]}
}
