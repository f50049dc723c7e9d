package onnx

import (
	"sync/atomic"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A slot holds the outputs of one run until the last response made from them is
// released. While they are being encoded the instance runs with another slot.
type slot struct {
	pool   *slotPool
	model  *loaded
	call   *ort.Call
	region region
	refs   atomic.Int32 // the responses that are not released

	sets   []*outputSet // the most recent one first
	set    *outputSet   // the one of the run
	values []ort.Value  // the outputs of the run
	owned  []bool       // which of them ONNX Runtime allocated and must be released
	outs   []output     // what it returned for those
	dims   tensor.Shape // the shape of the output being read
	text   []byte       // the strings of the output being read
	epoch  uint32       // the model's epoch when the sets were made
}

// An output is the value of one of the model's outputs after a run.
type output struct {
	shape tensor.Shape // the client's, with all rows of the batch
	data  []byte

	// For strings: the offset of each element in data, and data's memory.
	begins []uint64
	text   []byte

	// For a scattered output: the shapes of the requests' parts, concatenated,
	// and the index of each part's first element, with the end of the last.
	shapes tensor.Shape
	starts []int
}

// read reads the outputs that ONNX Runtime allocated.
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
		return status.Errorf(status.Internal, "output '%s' has shape %s with a negative dimension", x.Name, dims)
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

// slice returns the part of an output's data with rows [from, to) of rows.
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

// A share is the n-th request's part of a batch: rows [from, to) of rows.
type share struct{ n, from, to, rows int }

// hand gives each request its rows of the outputs that it asks for. The slot is
// released with the last response.
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
	out.Name, out.Type, out.Index, out.Private = x.Name, x.Type, i, true
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

// Release implements infer.Releaser for one response.
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

// free frees everything that the slot has.
func (s *slot) free() {
	s.empty()
	s.dropSets()
	s.region.free()
}
