package ensemble

import (
	"sync"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A frame has the tensors that belong together: those of the request, or those
// that follow from one response of a decoupled step.
type frame struct {
	x      *run
	level  int
	values []value
	begun  []bool // of each step: it was started, so that its inputs are let go
	lents  []lent // of each step: its answer
	ready  []int  // memory for the list of steps that can start

	// The frames of a decoupled step's responses give their answers one after
	// the other.
	parent *frame          // nil for the request's own
	before <-chan struct{} // done of the response before; nil for the first
	done   chan struct{}   // closed when the frame and those below it have given theirs
	origin lent            // the response
	// entered, when set, is called when the first step is queued.
	entered func()

	wait sync.WaitGroup // for steps on other goroutines, and for frames below

	mu      sync.Mutex // protects the field below, and set of the values
	missing []int      // of each step: how many of its inputs are not there; -1 when it is not needed here
}

func (x *run) newFrame(level int) *frame {
	g := x.s.graph
	return &frame{
		x: x, level: level, values: make([]value, len(g.Tensors)),
		begun: make([]bool, len(g.Steps)), lents: make([]lent, len(g.Steps)), missing: make([]int, len(g.Steps)),
		ready: make([]int, 0, len(g.Steps)),
	}
}

// count prepares the frame for the steps that the request needs.
func (f *frame) count() {
	for i := range f.missing {
		f.missing[i] = -1
		if f.x.plan.steps[i] && f.x.s.levels[i] == f.level {
			f.missing[i] = len(f.x.s.graph.Steps[i].Inputs)
		}
	}
}

// reset forgets a request.
func (f *frame) reset() {
	clear(f.values)
	clear(f.begun)
	for i := range f.lents {
		l := &f.lents[i]
		l.request, l.borrows, l.frame, l.sequence = nil, nil, nil, infer.Sequence{}
	}
}

// setInput adds an input of the client.
func (f *frame) setInput(in *infer.Input, ready []int) []int {
	want := &f.x.s.sig.Inputs[in.Index]
	v := value{typ: in.Type, shape: in.Shape, data: in.Data}
	if f.x.s.sig.MaxBatch > 0 {
		v.rows = f.x.r.Rows
	}
	if want.Reshape != nil {
		v.shape = f.x.r.Dims(1 + len(want.Reshape))
		inner := in.Shape
		if v.rows > 0 {
			v.shape, inner = append(v.shape, in.Shape[0]), inner[1:]
		}
		v.shape = tensor.Substitute(v.shape, want.Reshape, want.Dims, inner)
	}
	return f.set(f.x.s.graph.Inputs[in.Index], v, ready)
}

// set adds a tensor and appends the steps that can start now.
func (f *frame) set(t int, v value, ready []int) []int {
	v.set = true
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[t] = v
	for _, reader := range f.x.s.graph.Readers[t] {
		if f.missing[reader.Step] < 0 {
			continue
		}
		if f.missing[reader.Step]--; f.missing[reader.Step] == 0 {
			ready = append(ready, reader.Step)
		}
	}
	return ready
}

// exec runs steps and those that can start after them: one on this goroutine,
// the others on their own.
func (f *frame) exec(ready []int) {
	for len(ready) > 0 {
		for _, i := range ready[1:] {
			f.wait.Go(func() {
				defer f.recovered()
				f.exec([]int{i})
			})
		}
		ready = f.step(ready[0], ready[:0])
	}
}

// recovered makes a panic the run's error. The server must survive it.
func (f *frame) recovered() {
	if p := recover(); p != nil {
		f.x.fail(status.Panicked(p))
	}
}

// step runs one step and appends those that can start after it.
func (f *frame) step(i int, ready []int) []int {
	x := f.x
	if x.failed() {
		return nil
	}
	if limit := x.s.limits[i]; limit != nil {
		select {
		case limit <- struct{}{}:
			defer func() { <-limit }()
		case <-x.ctx.Done():
			x.fail(x.ctx.Err())
			return nil
		}
	}
	f.begun[i] = true
	step := &x.s.graph.Steps[i]
	child, sequence := f.request(step)
	if step.Decoupled {
		f.stream(i, child, sequence)
		return nil
	}
	err := x.s.host.Infer(x.ctx, child)
	if err != nil {
		child.Release()
		f.letGo(step)
		x.failStep(step, err)
		return nil
	}
	l := &f.lents[i]
	l.request = child
	if child.Response.Borrowed {
		l.borrows, l.frame = step, f
	} else {
		f.letGo(step)
	}
	return f.take(step, &child.Response, l, child.Rows, sequence, ready)
}

// request returns the request of a step.
func (f *frame) request(step *model.Step) (*infer.Request, *infer.Sequence) {
	r := f.x.r
	child := infer.NewRequest()
	child.Model, child.Version, child.ID = step.Model, step.Version, r.ID
	child.Priority, child.Timeout = r.Priority, r.Timeout
	child.Params = append(child.Params, r.Params...)
	child.Spent, child.Trace = &f.x.spent, r.Trace.Call()
	sequence := &r.Sequence
	for i := range step.Inputs {
		link := &step.Inputs[i]
		v := &f.values[link.Tensor]
		if v.sequence != nil && sequence == &r.Sequence {
			sequence = v.sequence
		}
		if v.absent {
			continue
		}
		in := child.AddInput()
		in.Name, in.Type, in.Data = link.Name, v.typ, v.data
		in.Shape = fit(child.Dims(len(v.shape)+1), link.Dims, step.Batching, v)
	}
	child.Sequence = *sequence
	if !step.Whole {
		for i := range step.Outputs {
			child.Outputs = append(child.Outputs, infer.Wanted{Name: step.Outputs[i].Name})
		}
	}
	if f.entered != nil {
		child.Entered = f.entered
	} else if r.Entered != nil && f.parent == nil {
		child.Entered, r.Entered = r.Entered, nil
	}
	return child, sequence
}

// fit appends the shape of v for a model with those dims. Only one of the two
// may have a batch dimension.
func fit(dst, dims tensor.Shape, batching bool, v *value) tensor.Shape {
	if batching != (v.rows != 0) {
		matches := dims.Accepts(v.shape)
		if batching && matches {
			dst = append(dst, 1)
		} else if !batching && !matches && v.rows == 1 && len(v.shape) > 0 && v.shape[0] == 1 {
			return append(dst, v.shape[1:]...)
		}
	}
	return append(dst, v.shape...)
}

// take adds a step's answer to the frame's tensors, and appends the steps that
// can start after it. l has the memory of the answer.
func (f *frame) take(step *model.Step, resp *infer.Response, l *lent, rows int, sequence *infer.Sequence, ready []int) []int {
	l.sequence = *sequence
	if err := overrideSequence(&l.sequence, resp.Params); err != nil {
		l.refs.add(1)
		l.release(1)
		f.x.fail(err)
		return nil
	}
	l.refs.add(1) // while values are added, a step on another goroutine may end its use
	for i := range step.Outputs {
		link := &step.Outputs[i]
		v := value{absent: true, sequence: &l.sequence}
		if step.Batching {
			v.rows = rows
		}
		for j := range resp.Outputs {
			if out := &resp.Outputs[j]; out.Name == link.Name {
				v.absent, v.typ, v.shape, v.data, v.from = false, out.Type, out.Shape, infer.Data{First: out.Data, Private: out.Private}, l
				l.refs.add(f.x.plan.refs[link.Tensor])
				break
			}
		}
		ready = f.set(link.Tensor, v, ready)
	}
	l.release(1)
	return ready
}

// letGo ends the step's use of its inputs.
func (f *frame) letGo(step *model.Step) {
	for i := range step.Inputs {
		f.values[step.Inputs[i].Tensor].from.release(1)
	}
}

// drop ends the uses of what no step has used, and, unless the outputs have
// another owner, of the outputs. Nothing of the frame may be running.
func (f *frame) drop(outputs bool) {
	for i := range f.missing {
		if f.missing[i] < 0 || f.begun[i] {
			continue
		}
		f.letGo(&f.x.s.graph.Steps[i])
	}
	if outputs {
		f.releaseOutputs()
	}
}

// releaseOutputs ends the answer's use of the tensors.
func (f *frame) releaseOutputs() {
	for _, i := range f.x.plan.wanted {
		f.values[f.x.s.graph.Outputs[i].Tensor].from.release(1)
	}
}
