package onnx

import (
	"sync/atomic"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A slot holds the outputs of one run until the last response made of them is
// released. While they are being encoded the instance runs on with another.
type slot struct {
	pool   *slotPool
	model  *loaded
	call   *ort.Call
	region region
	refs   atomic.Int32 // the responses that are out

	sets   []*outputSet // the most recent one first
	set    *outputSet   // the one of the run
	values []ort.Value  // the outputs of the run
	owned  []bool       // which of them ONNX Runtime allocated: they are to be released
	outs   []output     // what it gave for those
	dims   tensor.Shape // the shape of the output being read
	text   []byte       // the strings of the output being read
	epoch  uint32       // which of the model's outputs the sets bind
}

// An output is what a run gave for one of the model's outputs.
type output struct {
	shape tensor.Shape // as clients see it, with all rows of the batch
	data  []byte

	// For strings: where each element begins in data, and data's memory.
	begins []uint64
	text   []byte

	// For a scattered output: the shape of each request's part, one after the
	// other, and the element with which each begins, and the last ends.
	shapes tensor.Shape
	starts []int
}

// read notes what the run gave for the outputs that ONNX Runtime allocated.
func (s *slot) read(requests []*infer.Request, rows int) error {
	for i, owned := range s.owned {
		if !owned {
			continue
		}
		if err := s.readOwned(i, requests, rows); err != nil {
			return err
		}
	}
	return nil
}

func (s *slot) readOwned(i int, requests []*infer.Request, rows int) error {
	x, o, v := &s.model.outputs[i], &s.outs[i], s.values[i]
	t, dims, err := s.call.Describe(v, s.dims[:0])
	if err != nil {
		return err
	}
	s.dims = dims
	if t != x.Type {
		return status.Errorf(status.Internal, "output '%s' has data type %s, but its configuration says %s", x.Name, t.ConfigName(), x.Type.ConfigName())
	}
	elements, ok := dims.Elements()
	if !ok {
		return status.Errorf(status.Internal, "output '%s' has shape %s, which is no size", x.Name, dims)
	}
	if x.scatter != nil {
		err = x.scatter.cut(o, x, requests, elements)
	} else {
		o.shape, err = x.clientShape(o.shape[:0], dims, rows)
	}
	if err != nil {
		return err
	}
	if t == tensor.Bytes {
		return s.readStrings(o, v, elements)
	}
	address, err := s.call.Data(v)
	if err != nil {
		return err
	}
	o.data = ort.Bytes(address, int(elements)*t.Size())
	return nil
}

// slice returns the part of an output's data that has rows [from, to) of so
// many.
func (o *output) slice(from, to, rows int) []byte {
	if from == 0 && to == rows {
		return o.data
	}
	if o.begins != nil {
		per := (len(o.begins) - 1) / rows
		return o.data[o.begins[from*per]:o.begins[to*per]]
	}
	per := len(o.data) / rows
	return o.data[from*per : to*per]
}

// A share is the part of a batch that is one request's: the n-th, with rows
// [from, to) of so many.
type share struct{ n, from, to, rows int }

// hand gives each request its rows of the outputs that it wants. The slot is
// released when the last response is.
func (s *slot) hand(requests []*infer.Request, rows int) {
	s.refs.Store(int32(len(requests)))
	from := 0
	for n, r := range requests {
		to := rows
		if len(requests) > 1 {
			to = from + r.Rows
		}
		part := share{n, from, to, rows}
		if len(r.Outputs) == 0 {
			for i := range s.outs {
				s.add(r, i, part)
			}
		}
		for j := range r.Outputs {
			if i := s.model.sig.Output(r.Outputs[j].Name); i >= 0 {
				s.add(r, i, part)
			}
		}
		r.Response.Own(s)
		from = to
	}
}

func (s *slot) add(r *infer.Request, i int, part share) {
	x, o := &s.model.outputs[i], &s.set.outs[i]
	if s.owned[i] {
		o = &s.outs[i]
	}
	out := r.Response.AddOutput()
	out.Name, out.Type, out.Index = x.Name, x.Type, i
	if x.scatter != nil {
		o.scattered(out, part.n)
		return
	}
	out.Shape = append(out.Shape[:0], o.shape...)
	if x.batched {
		out.Shape[0] = int64(part.to - part.from)
	}
	out.Data = o.slice(part.from, part.to, part.rows)
}

// Release implements infer.Releaser: one response less.
func (s *slot) Release() {
	if s.refs.Add(-1) == 0 {
		s.pool.put(s)
	}
}

// empty releases what ONNX Runtime allocated for the last run.
func (s *slot) empty() {
	for i, owned := range s.owned {
		if owned {
			s.call.Release(s.values[i])
			s.values[i], s.owned[i] = 0, false
		}
	}
}

// free gives back all that the slot has.
func (s *slot) free() {
	s.empty()
	s.dropSets()
	s.region.free()
}
