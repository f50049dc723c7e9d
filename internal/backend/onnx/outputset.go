package onnx

import (
	"slices"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/tensor"
)

// An outputSet is the layout of the outputs of a batch of so many rows in a
// slot's region, with ONNX Runtime's tensors over them.
type outputSet struct {
	rows   int
	size   int         // how much of the region it uses
	values []ort.Value // none for outputs that ONNX Runtime allocates
	outs   []output    // the outputs of a run, for the others
	bound  int         // the number of the others
}

// maxSets bounds the sets of a slot.
const maxSets = 64

// setFor returns the set for a batch of so many rows, cached or new.
func (s *slot) setFor(rows int) (*outputSet, error) {
	if e := s.model.epoch.Load(); e != s.epoch {
		s.dropSets()
		s.epoch = e
	}
	if set := s.cachedSet(rows); set != nil {
		if s.region.use(set.size) {
			return set, nil
		}
		s.dropSets()
		s.region.free()
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
	if !s.region.use(set.size) {
		s.dropSets()
		if err := s.region.resize(max(set.size, m.outputBytes)); err != nil {
			return nil, err
		}
	}
	for i, shape := range shapes {
		if shape == nil {
			continue
		}
		if err := set.bind(m, i, shape, &s.region, places[i]); err != nil {
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

// bind places an output of known shape in the region.
func (set *outputSet) bind(m *loaded, i int, shape tensor.Shape, a *region, place int) error {
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

// maxBound is the largest output whose memory we allocate; ONNX Runtime
// allocates larger ones, since it may know better than the configuration.
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
