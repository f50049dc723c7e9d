package onnx

import (
	"errors"
	"sync"
	"time"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// An instance runs batches of one model, one at a time.
type instance struct {
	model *loaded
	use   *usedSession
	call  *ort.Call // for filling in inputs
	slots slotPool
	born  time.Time

	mu      sync.Mutex // protects the fields below: a run holds it
	arena   arena
	copies  infer.Copies
	plans   []*plan          // the most recent one first
	key     []int64          // the shapes of the batch at hand
	live    []*infer.Request // its requests that are to run; stale between runs
	scratch []byte
}

func newInstance(m *loaded, use *usedSession) *instance {
	in := &instance{model: m, use: use, call: ort.NewCall(use.session, m.runOptions), born: time.Now()}
	in.slots.model, in.slots.use = m, use
	return in
}

// Run implements backend.Instance.
func (in *instance) Run(b *infer.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	rows := in.admit(b.Requests)
	if len(in.live) == 0 {
		return nil // each request has its error
	}
	if limit := in.model.sig.MaxBatch; limit > 0 && rows > limit || limit == 0 && len(in.live) > 1 {
		return status.Errorf(status.Internal, "batch size %d for '%s', max allowed is %d", rows, in.model.sig.Name, max(limit, 1))
	}
	p, err := in.planFor(in.live, rows)
	if err != nil {
		return in.fault(err)
	}
	defer in.tidy(p)
	if err := in.gather(p, in.live); err != nil {
		return in.fault(err)
	}
	s := in.slots.take()
	b.Times.InputsReady = in.now()
	err = in.execute(p, s, rows)
	b.Times.OutputsOut = in.now()
	if err == nil {
		err = s.read(in.live, rows)
	}
	if err != nil {
		in.slots.put(s)
		return in.fault(err)
	}
	s.hand(in.live, rows)
	return nil
}

// now returns the time, from one reading of the clock: time.Now makes two.
func (in *instance) now() time.Time { return in.born.Add(time.Since(in.born)) }

// fault gives an error its code and the model's name. The instance lives on.
func (in *instance) fault(err error) error {
	var se *status.Error
	var oe *ort.Error
	switch {
	case errors.As(err, &se):
		return forModel(in.model.sig.Name, err)
	case errors.As(err, &oe):
		return status.Errorf(status.Internal, "%s", oe.Error())
	}
	return status.Wrap(status.Internal, err, "model '"+in.model.sig.Name+"' could not be run; the server's log has the details")
}

// admit sorts out the requests whose data will not do, gives them their error
// and puts the others into in.live. It returns the rows of those.
func (in *instance) admit(requests []*infer.Request) (rows int) {
	in.live = in.live[:0]
	for _, r := range requests {
		r.Err = in.check(r)
		if r.Err == nil {
			in.live = append(in.live, r)
			rows += r.Rows
		}
	}
	return rows
}

// check says why a request cannot run, or not with those already in in.live.
// The engine has checked each against the signature; what is left is the
// content of strings, and what would have us read or write beyond a tensor.
func (in *instance) check(r *infer.Request) error {
	m := in.model
	for j := range r.Inputs {
		input := &r.Inputs[j]
		if input.Index < 0 || input.Index >= len(m.inputs) || j > 0 && input.Index <= r.Inputs[j-1].Index {
			return status.Errorf(status.Internal, "BUG: the inputs of a request to model '%s' are not in order", m.sig.Name)
		}
		x := &m.inputs[input.Index]
		if err := in.checkInput(x, input, r.Rows); err != nil {
			return err
		}
	}
	for _, i := range m.sources {
		if inputOf(r, i) == nil {
			return status.Errorf(status.Internal, "BUG: a request to model '%s' has no input '%s'", m.sig.Name, m.inputs[i].Name)
		}
	}
	if len(in.live) > 0 && !m.sameShapes(in.live[0], r) {
		return status.Errorf(status.Internal, "the request's input shapes differ from those of the others in its batch for model '%s'", m.sig.Name)
	}
	return nil
}

func (in *instance) checkInput(x *port, input *infer.Input, rows int) error {
	name := in.model.sig.Name
	if x.batched && (len(input.Shape) == 0 || input.Shape[0] != int64(rows)) {
		return status.Errorf(status.InvalidArgument, "input '%s' batch size does not match other inputs for '%s'", x.Name, name)
	}
	if x.Type == tensor.Bytes {
		elements, ok := input.Shape.Elements()
		if !ok {
			elements = -1 // no number of strings will do
		}
		return checkStrings(name, x.Name, in.contiguous(input.Data), elements)
	}
	want, ok := input.Shape.Bytes(x.Type)
	if got := input.Data.Size(); !ok || int64(got) != want {
		return status.Errorf(status.InvalidArgument, "input byte size mismatch for input '%s' for model '%s'. Expected %d, got %d", x.Name, name, want, got)
	}
	return nil
}

// sameShapes reports whether two requests may run together: the same inputs,
// whose shapes differ in the batch dimension only, unless they are ragged.
func (m *loaded) sameShapes(a, b *infer.Request) bool {
	if len(a.Inputs) != len(b.Inputs) {
		return false
	}
	for i := range a.Inputs {
		x, y := &a.Inputs[i], &b.Inputs[i]
		if x.Index != y.Index || len(x.Shape) != len(y.Shape) {
			return false
		}
		if len(x.Shape) > 0 && !x.Shape[1:].Equal(y.Shape[1:]) && !m.inputs[x.Index].Ragged {
			return false
		}
	}
	return true
}

// execute runs the model once over the plan's inputs into the slot.
//
// Outputs of known shape are bound to the slot's memory. Declared shapes may
// lie, and then the run fails; so a failed run is tried once more with all
// outputs left to ONNX Runtime, and outputs whose shape was a lie are never
// bound again. A run that fails by itself fails twice, which is rare enough.
func (in *instance) execute(p *plan, s *slot, rows int) error {
	set, err := s.setFor(rows)
	if err != nil {
		return err
	}
	s.set = set
	copy(s.values, set.values)
	err = in.runOnce(p, s)
	if err == nil || set.bound == 0 {
		return err
	}
	clear(s.values)
	if in.runOnce(p, s) != nil {
		return err
	}
	return in.model.unbind(s, rows)
}

func (in *instance) runOnce(p *plan, s *slot) error {
	for i, v := range s.values {
		s.owned[i] = v == 0
	}
	return s.call.Run(p.names, p.values, in.model.outputNames, s.values)
}

// Trim implements backend.Trimmer. An instance that runs keeps its inputs.
func (in *instance) Trim() {
	in.slots.trim()
	if in.mu.TryLock() {
		defer in.mu.Unlock()
		in.dropPlans()
		in.arena.free()
	}
}

// Close implements backend.Instance.
func (in *instance) Close() error {
	in.slots.close()
	in.dropPlans()
	in.arena.free()
	in.model.returnSession(in.use)
	return nil
}
