package onnx

import (
	"errors"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/procs"
	"shoal/internal/status"
)

// An instance runs batches of one model, one at a time.
type instance struct {
	use   *usedSession
	slots slotPool
	born  time.Time

	mu        sync.Mutex // protects the fields below: a run holds it
	inputSlot            // the model in it does not change
	usual     procs.Usual
}

func newInstance(m *loaded, use *usedSession) *instance {
	in := &instance{use: use, born: time.Now(), inputSlot: newInputSlot(m, use)}
	in.slots.model, in.slots.use = m, use
	return in
}

// Run implements backend.Instance.
func (in *instance) Run(b *infer.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	requests, rows := b.Requests, b.Rows
	if limit := in.model.sig.MaxBatch; limit > 0 && rows > limit || limit == 0 && len(requests) > 1 {
		return status.Errorf(status.Internal, "batch size %d for '%s', max allowed is %d", rows, in.model.sig.Name, max(limit, 1))
	}
	p, err := in.planFor(requests, rows)
	if err != nil {
		return in.fault(err)
	}
	defer in.tidy(p)
	if err := in.gather(p, requests, true); err != nil {
		return in.fault(err)
	}
	s := in.slots.take()
	b.Times.InputsReady = in.now()
	err = in.executeCounted(p, s, rows)
	b.Times.OutputsOut = in.now()
	in.usual.Observe(b.Times.OutputsOut.Sub(b.Times.InputsReady))
	if err == nil {
		err = s.read(requests, rows)
	}
	if err != nil {
		in.slots.put(s)
		return in.fault(err)
	}
	s.hand(requests, rows)
	return nil
}

// ComputesOnThread implements backend.OnThread: ONNX Runtime takes part with the
// thread that calls it, and keeps memory for each such thread.
func (in *instance) ComputesOnThread() {}

// GPU implements backend.OnGPU. The arena of a session on a GPU without fixed
// shapes grows with its runs; what it has is not counted.
func (in *instance) GPU() (backend.GPUUse, bool) {
	if in.use.kind != modelpb.ModelInstanceGroup_KIND_GPU {
		return backend.GPUUse{}, false
	}
	return in.model.backend.gpuUse(in.use.gpu), true
}

// now returns the time, from one reading of the clock: time.Now makes two.
func (in *instance) now() time.Time { return in.born.Add(time.Since(in.born)) }

// fault gives an error its code and the model's name. The instance stays
// usable.
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

// executeCounted executes a batch, with a processor for others if that usually
// takes long.
func (in *instance) executeCounted(p *plan, s *slot, rows int) error {
	if in.usual.Long() {
		procs.Native.Begin()
		defer procs.Native.End()
	}
	return in.execute(p, s, rows)
}

// execute runs the model once over the plan's inputs into the slot.
//
// Outputs of known shape are bound to the slot's memory. Declared shapes may be
// wrong, and then the run fails. So a failed run is repeated once with all
// outputs allocated by ONNX Runtime, and outputs whose shape was wrong are
// never bound again. A run that fails for another reason fails twice, which is
// rare.
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
	return s.call.Run(p.names, in.values, in.model.outputNames, s.values)
}

// Trim implements backend.Trimmer. A running instance keeps its inputs.
func (in *instance) Trim() {
	in.slots.trim()
	if in.mu.TryLock() {
		defer in.mu.Unlock()
		in.dropPlans()
		in.region.free()
	}
}

// Close implements backend.Instance.
func (in *instance) Close() error {
	in.slots.close()
	in.dropPlans()
	in.region.free()
	in.model.returnSession(in.use)
	return nil
}
