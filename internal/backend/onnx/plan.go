package onnx

import (
	"hash/maphash"
	"slices"
	"unsafe"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A plan is how a batch's inputs lie in the instance's arena, with the tensors
// of ONNX Runtime over them. There is one for each set of input shapes that
// occurred lately; making those tensors costs more than running a small model.
type plan struct {
	hash   uint64
	key    []int64
	names  *ort.Names
	inputs []planned // the inputs that are present, in the signature's order
	values []ort.Value
	size   int // how much of the arena it uses
}

// A planned is the place of one input in a plan.
type planned struct {
	port   *port
	place  int // the input's place in each request's Inputs
	offset int
	size   int
}

// maxPlans bounds the plans of an instance. A batching model with fixed
// dimensions has one per batch size.
const maxPlans = 64

var seed = maphash.MakeSeed()

// shapeKey appends to key what tells one set of input shapes from another. An
// absent optional input is -1, which no rank is.
func shapeKey(key []int64, inputs []port, r *infer.Request, rows int) []int64 {
	present := r.Inputs
	for i := range inputs {
		if len(present) == 0 || present[0].Index != i {
			key = append(key, -1)
			continue
		}
		at := len(key)
		key = append(key, 0)
		key = inputs[i].graphShape(key, present[0].Shape, rows)
		key[at] = int64(len(key) - at - 1)
		present = present[1:]
	}
	return key
}

func hashKey(key []int64) uint64 {
	if len(key) == 0 {
		return 0
	}
	return maphash.Bytes(seed, unsafe.Slice((*byte)(unsafe.Pointer(&key[0])), 8*len(key)))
}

// planFor returns the plan for requests shaped like r with so many rows
// together, from the cache or new.
func (in *instance) planFor(r *infer.Request, rows int) (*plan, error) {
	in.key = shapeKey(in.key[:0], in.model.inputs, r, rows)
	p := in.cachedPlan()
	if p != nil && in.arena.use(p.size) {
		return p, nil
	}
	if p != nil { // the arena has been too large for a while: start anew
		in.dropPlans()
		in.arena.free()
	}
	return in.newPlan()
}

// cachedPlan returns the plan for the shapes in in.key, nil when there is none.
func (in *instance) cachedPlan() *plan {
	if len(in.plans) > 0 && slices.Equal(in.plans[0].key, in.key) {
		return in.plans[0] // the same as last time: no need to search
	}
	hash := hashKey(in.key)
	for i, p := range in.plans {
		if p.hash == hash && slices.Equal(p.key, in.key) {
			copy(in.plans[1:i+1], in.plans[:i]) // the most recent one first
			in.plans[0] = p
			return p
		}
	}
	return nil
}

// newPlan lays out the arena for the shapes in in.key and makes the tensors.
func (in *instance) newPlan() (*plan, error) {
	p := &plan{hash: hashKey(in.key), key: slices.Clone(in.key), names: in.model.inputNames}
	shapes := make([]tensor.Shape, 0, len(in.model.inputs))
	var names []string
	rest := p.key
	for i := range in.model.inputs {
		rank := rest[0]
		rest = rest[1:]
		if rank < 0 {
			continue
		}
		x := &in.model.inputs[i]
		shape := tensor.Shape(rest[:rank])
		rest = rest[rank:]
		size, _ := shape.Bytes(x.Type) // none for strings, which ONNX Runtime keeps
		p.inputs = append(p.inputs, planned{port: x, place: len(p.inputs), offset: p.size, size: int(size)})
		p.size = align(p.size + int(size))
		shapes, names = append(shapes, shape), append(names, x.Name)
	}
	if len(names) < len(in.model.inputs) {
		p.names = ort.NewNames(names)
	}
	if !in.arena.use(p.size) {
		in.dropPlans()
		if err := in.arena.resize(max(p.size, in.model.inputBytes)); err != nil {
			return nil, err
		}
	}
	for i, shape := range shapes {
		v, err := in.newInput(&p.inputs[i], shape)
		if err != nil {
			p.release(in.model.lib)
			return nil, err
		}
		p.values = append(p.values, v)
	}
	if len(in.plans) == maxPlans {
		in.plans[maxPlans-1].release(in.model.lib)
		in.plans = in.plans[:maxPlans-1]
	}
	in.plans = slices.Insert(in.plans, 0, p)
	return p, nil
}

func (in *instance) newInput(at *planned, shape tensor.Shape) (ort.Value, error) {
	if at.port.Type == tensor.Bytes {
		return in.model.lib.NewOwnTensor(tensor.Bytes, shape)
	}
	return in.model.lib.NewTensor(at.port.Type, shape, in.arena.address(at.offset), at.size)
}

// release frees the plan's tensors.
func (p *plan) release(lib *ort.Library) {
	for _, v := range p.values {
		lib.Release(v)
	}
}

// dropPlans frees all plans, because the memory that they refer to goes.
func (in *instance) dropPlans() {
	for _, p := range in.plans {
		p.release(in.model.lib)
	}
	clear(in.plans)
	in.plans = in.plans[:0]
}

// gather copies the requests' inputs to where the plan has them: the one copy
// that a tensor makes on its way from the socket to the model.
func (in *instance) gather(p *plan, requests []*infer.Request) error {
	for i := range p.inputs {
		at := &p.inputs[i]
		if at.port.Type == tensor.Bytes {
			if err := in.gatherStrings(p.values[i], at, requests); err != nil {
				return err
			}
			continue
		}
		dst := in.arena.mem[at.offset : at.offset+at.size]
		for _, r := range requests {
			data := &r.Inputs[at.place].Data
			if data.Size() > len(dst) {
				return errReshape(at.port)
			}
			dst = dst[data.CopyTo(dst):]
		}
		if len(dst) > 0 { // what lies there is an earlier client's
			return errReshape(at.port)
		}
	}
	return nil
}

// errReshape says that the requests' data, whose size is right for the shapes
// that their clients gave, is not what the graph's shape takes.
func errReshape(x *port) error {
	return status.Errorf(status.Internal, "input '%s': the reshape from %s to %s changes the number of elements", x.Name, x.Dims, x.inner)
}
