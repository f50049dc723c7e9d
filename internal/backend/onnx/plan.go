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

// An inputSlot is memory for the inputs of one batch at a time, with the plans
// of its layouts.
type inputSlot struct {
	model  *loaded
	call   *ort.Call // for filling in strings
	region region
	copies infer.Copies
	plans  []*plan // the most recent one first
	key    []int64 // the shapes of the current batch

	// The inputs of the current run, and those of them that are over the
	// request's own memory.
	values, inPlace []ort.Value
}

// A plan is the layout of a batch's inputs in the slot's region, with ONNX
// Runtime's tensors over them. There is one for each recent set of input
// shapes; making the tensors costs more than running a small model.
type plan struct {
	hash   uint64
	key    []int64
	names  *ort.Names
	inputs []planned // the inputs that are present, in the signature's order
	made   []planned // the batch inputs
	values []ort.Value
	size   int // how much of the region it uses
	// text is the most that its string tensors can hold: a string that was once
	// long keeps its memory.
	text int
}

func newInputSlot(m *loaded, use *usedSession) inputSlot {
	return inputSlot{model: m, call: ort.NewCall(use.session, m.runOptions), region: use.region()}
}

// A planned is one input's position in a plan.
type planned struct {
	port    *port // for a batch input its source
	batch   *batchInput
	index   int // the input's place among the model's inputs
	place   int // its position in each request's Inputs
	shape   tensor.Shape
	offset  int
	size    int
	strings int // the elements of a tensor of strings, which has no size
}

const (
	// maxPlans bounds the plans of a slot. A batching model with fixed
	// dimensions has one per batch size.
	maxPlans = 64
	// stringSize is what ONNX Runtime needs for a string in addition to its
	// content.
	stringSize = 32
)

var seed = maphash.MakeSeed()

// shapeKey appends to key what distinguishes sets of input shapes: the rank and
// dimensions that each tensor has for the graph, those of batch inputs last. An
// absent optional input is -1, which is not a rank.
func (m *loaded) shapeKey(key []int64, requests []*infer.Request, rows int) []int64 {
	present := requests[0].Inputs
	for i := range m.inputs {
		if len(present) == 0 || present[0].Index != i {
			key = append(key, -1)
			continue
		}
		at := len(key)
		key = append(key, 0)
		if m.inputs[i].Ragged {
			key = append(key, totalElements(requests, i))
		} else {
			key = m.inputs[i].graphShape(key, present[0].Shape, rows)
		}
		key[at] = int64(len(key) - at - 1)
		present = present[1:]
	}
	for i := range m.batchInputs {
		b := &m.batchInputs[i]
		at := len(key)
		key = append(key, 0)
		key = b.shape(key, &m.inputs[b.source], requests, rows)
		key[at] = int64(len(key) - at - 1)
	}
	return key
}

// totalElements returns how many elements the requests have together in a
// ragged input.
func totalElements(requests []*infer.Request, index int) (n int64) {
	for _, r := range requests {
		n += elementsOf(r, index)
	}
	return n
}

func hashKey(key []int64) uint64 {
	if len(key) == 0 {
		return 0
	}
	return maphash.Bytes(seed, unsafe.Slice((*byte)(unsafe.Pointer(&key[0])), 8*len(key)))
}

// planFor returns the plan for requests with so many rows together, cached or
// new.
func (in *inputSlot) planFor(requests []*infer.Request, rows int) (*plan, error) {
	in.key = in.model.shapeKey(in.key[:0], requests, rows)
	p := in.cachedPlan()
	if p != nil && in.region.use(p.size) {
		return p, nil
	}
	if p != nil { // the region has been too large for a while: make it anew
		in.dropPlans()
		in.region.free()
	}
	return in.newPlan()
}

// cachedPlan returns the plan for the shapes in in.key, nil when there is none.
func (in *inputSlot) cachedPlan() *plan {
	if len(in.plans) > 0 && slices.Equal(in.plans[0].key, in.key) {
		return in.plans[0] // the same as last time: no search
	}
	hash := hashKey(in.key)
	for i, p := range in.plans {
		if p.hash == hash && slices.Equal(p.key, in.key) {
			copy(in.plans[1:i+1], in.plans[:i]) // move it to the front
			in.plans[0] = p
			return p
		}
	}
	return nil
}

// newPlan lays out the region for the shapes in in.key and makes the tensors.
func (in *inputSlot) newPlan() (*plan, error) {
	p := &plan{hash: hashKey(in.key), key: slices.Clone(in.key), names: in.model.inputNames}
	shapes, names := in.model.lay(p)
	if len(names) < p.names.Len() {
		p.names = ort.NewNames(names)
	}
	if !in.region.use(p.size) {
		in.dropPlans()
		if err := in.region.resize(max(p.size, in.model.inputBytes)); err != nil {
			return nil, err
		}
	}
	for i, shape := range shapes {
		v, err := in.newInput(p.at(i), shape)
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

// lay places each tensor of the plan's key in the region and returns their
// shapes and names.
func (m *loaded) lay(p *plan) (shapes []tensor.Shape, names []string) {
	rest := p.key
	for i := range m.inputs {
		if rest[0] < 0 {
			rest = rest[1:]
			continue
		}
		x := &m.inputs[i]
		at := planned{port: x, index: i, place: len(p.inputs)}
		shapes, names = append(shapes, at.lay(p, x.Type, &rest)), append(names, x.Name)
		p.inputs = append(p.inputs, at)
	}
	for i := range m.batchInputs {
		b := &m.batchInputs[i]
		at := planned{port: &m.inputs[b.source], batch: b}
		shapes, names = append(shapes, at.lay(p, b.typ, &rest)), append(names, b.name)
		p.made = append(p.made, at)
	}
	return shapes, names
}

// lay takes a shape from the rest of a key and assigns it the next place in the
// plan.
func (at *planned) lay(p *plan, t tensor.Type, rest *[]int64) tensor.Shape {
	rank := (*rest)[0]
	shape := tensor.Shape((*rest)[1 : 1+rank])
	*rest = (*rest)[1+rank:]
	size, _ := shape.Bytes(t) // 0 for strings, which ONNX Runtime stores
	if t == tensor.Bytes {
		elements, _ := shape.Elements()
		at.strings = int(elements)
		p.text += at.strings * stringSize
	}
	at.shape, at.offset, at.size = shape, p.size, int(size)
	p.size = align(p.size + at.size)
	return shape
}

// at returns the i-th of the plan's values.
func (p *plan) at(i int) *planned {
	if i < len(p.inputs) {
		return &p.inputs[i]
	}
	return &p.made[i-len(p.inputs)]
}

func (in *inputSlot) newInput(at *planned, shape tensor.Shape) (ort.Value, error) {
	t := at.port.Type
	if at.batch != nil {
		t = at.batch.typ
	}
	if t == tensor.Bytes {
		return in.model.lib.NewOwnTensor(tensor.Bytes, shape)
	}
	return in.model.lib.NewTensor(t, shape, in.region.address(at.offset), at.size)
}

// release frees the plan's tensors.
func (p *plan) release(lib *ort.Library) {
	for _, v := range p.values {
		lib.Release(v)
	}
}

// tidy frees what only this run needed. The run's plan is the first.
func (in *inputSlot) tidy(p *plan) {
	in.releaseInPlace()
	if p.text > keptSize {
		p.release(in.model.lib)
		in.plans = slices.Delete(in.plans, 0, 1)
	}
}

// dropPlans frees all plans before the memory that they refer to is freed.
func (in *inputSlot) dropPlans() {
	for _, p := range in.plans {
		p.release(in.model.lib)
	}
	clear(in.plans)
	in.plans = in.plans[:0]
}

// gather copies the requests' inputs to their places in the plan: the only copy
// of a tensor on its way from the socket to the model. Ragged inputs are simply
// concatenated, like the others. With inPlace, large inputs of a batch's only
// request stay where they are.
func (in *inputSlot) gather(p *plan, requests []*infer.Request, inPlace bool) error {
	in.values = append(in.values[:0], p.values...)
	in.copies.Begin(p.size)
	defer in.copies.End()
	for i := range p.inputs {
		at := &p.inputs[i]
		if at.port.Type == tensor.Bytes {
			n, err := in.gatherStrings(p.values[i], at, requests)
			if p.text += n; err != nil {
				return err
			}
			continue
		}
		if inPlace && len(requests) == 1 && in.useInPlace(i, at, requests[0]) {
			continue
		}
		dst := in.region.mem[at.offset : at.offset+at.size]
		for _, r := range requests {
			input := at.in(r)
			if input == nil || input.Data.Size() > len(dst) {
				return errMisfit(at.port)
			}
			dst = dst[in.copies.Add(dst, input.Data):]
		}
		if len(dst) > 0 { // clear what an earlier client left
			return errMisfit(at.port)
		}
	}
	for i := range p.made {
		if err := in.makeInput(&p.made[i], requests); err != nil {
			return err
		}
	}
	return nil
}

// makeInput fills in a batch input.
func (in *inputSlot) makeInput(at *planned, requests []*infer.Request) error {
	dst := in.region.mem[at.offset : at.offset+at.size : at.offset+at.size]
	made, err := at.batch.fill(dst[:0], at.port, requests)
	if err != nil {
		return err
	}
	if len(made) > len(dst) {
		return status.Errorf(status.Internal, "BUG: batch input '%s' has %d bytes, want %d", at.batch.name, len(made), len(dst))
	}
	clear(dst[len(made):]) // clear what an earlier client left
	return nil
}

// in returns the request's input at this position of the plan, nil when the
// request does not have the plan's inputs.
func (at *planned) in(r *infer.Request) *infer.Input {
	if at.place >= len(r.Inputs) || r.Inputs[at.place].Index != at.index {
		return nil
	}
	return &r.Inputs[at.place]
}

// errMisfit is returned when the requests of a batch do not fill the tensor
// that they share. The engine and the scheduler never form such a batch.
func errMisfit(x *port) error {
	return status.Errorf(status.Internal, "BUG: the requests of a batch do not fit the tensor of input '%s'", x.Name)
}
