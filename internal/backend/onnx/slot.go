package onnx

import (
	"slices"
	"sync/atomic"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A slot holds the outputs of one run until the last response made of them is
// released. While they are being encoded the instance runs on with another.
type slot struct {
	pool  *slotPool
	model *loaded
	call  *ort.Call
	arena arena
	refs  atomic.Int32 // the responses that are out

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

// An outputSet is how the outputs of a batch of so many rows lie in a slot's
// arena, with the tensors of ONNX Runtime over them.
type outputSet struct {
	rows   int
	size   int         // how much of the arena it uses
	values []ort.Value // none for outputs that ONNX Runtime allocates
	outs   []output    // what a run will have given, for the others
	bound  int         // how many those are
}

// maxSets bounds the sets of a slot.
const maxSets = 64

// setFor returns the set for a batch of so many rows, from the cache or new.
func (s *slot) setFor(rows int) (*outputSet, error) {
	if e := s.model.epoch.Load(); e != s.epoch {
		s.dropSets()
		s.epoch = e
	}
	if set := s.cachedSet(rows); set != nil {
		if s.arena.use(set.size) {
			return set, nil
		}
		s.dropSets()
		s.arena.free()
	}
	return s.newSet(rows)
}

func (s *slot) cachedSet(rows int) *outputSet {
	for i, set := range s.sets {
		if set.rows == rows {
			copy(s.sets[1:i+1], s.sets[:i])
			s.sets[0] = set
			return set
		}
	}
	return nil
}

func (s *slot) newSet(rows int) (*outputSet, error) {
	m := s.model
	n := len(m.outputs)
	set := &outputSet{rows: rows, values: make([]ort.Value, n), outs: make([]output, n)}
	shapes, places := make([]tensor.Shape, n), make([]int, n+1)
	for i := range m.outputs {
		places[i+1] = places[i]
		if !m.bound(i) {
			continue
		}
		shape := m.outputs[i].boundShape(rows)
		if size, ok := shape.Bytes(m.outputs[i].Type); ok && size <= maxBound {
			shapes[i], places[i+1] = shape, align(places[i]+int(size))
		}
	}
	set.size = places[n]
	if !s.arena.use(set.size) {
		s.dropSets()
		if err := s.arena.resize(max(set.size, m.outputBytes)); err != nil {
			return nil, err
		}
	}
	for i, shape := range shapes {
		if shape == nil {
			continue
		}
		if err := set.bind(m, i, shape, &s.arena, places[i]); err != nil {
			set.release(m.lib)
			return nil, err
		}
	}
	if len(s.sets) == maxSets {
		s.sets[maxSets-1].release(m.lib)
		s.sets = s.sets[:maxSets-1]
	}
	s.sets = slices.Insert(s.sets, 0, set)
	return set, nil
}

// bind lays an output of known shape at a place in the arena.
func (set *outputSet) bind(m *loaded, i int, shape tensor.Shape, a *arena, place int) error {
	x := &m.outputs[i]
	size, _ := shape.Bytes(x.Type)
	client, err := x.clientShape(nil, shape, set.rows)
	if err != nil {
		return err
	}
	v, err := m.lib.NewTensor(x.Type, shape, a.address(place), int(size))
	if err != nil {
		return err
	}
	set.values[i] = v
	set.outs[i] = output{shape: client, data: a.mem[place : place+int(size)]}
	set.bound++
	return nil
}

// maxBound is the largest output whose memory we lay out; a larger one is left
// to ONNX Runtime, which may know better than the configuration.
const maxBound = 1 << 32

// boundShape returns the graph's shape of a bindable output. It is not nil.
func (x *port) boundShape(rows int) tensor.Shape {
	shape := make(tensor.Shape, 0, len(x.inner)+1)
	if x.batched {
		shape = append(shape, int64(rows))
	}
	return append(shape, x.inner...)
}

func (set *outputSet) release(lib *ort.Library) {
	for _, v := range set.values {
		lib.Release(v)
	}
}

func (s *slot) dropSets() {
	for _, set := range s.sets {
		set.release(s.model.lib)
	}
	clear(s.sets)
	s.sets = s.sets[:0]
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
	s.arena.free()
}
