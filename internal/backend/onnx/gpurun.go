package onnx

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"shoal/internal/backend/cuda"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/procs"
	"shoal/internal/status"
)

// Ahead implements backend.Ahead.
func (in *gpuInstance) Ahead() int {
	if in.model.opening.set.alone {
		return 0
	}
	return inputSlots - 1
}

// Overlaps implements backend.Overlapping.
func (in *gpuInstance) Overlaps() {}

// Run implements backend.Instance. The batch's work is in the device's queue
// before its turn has come, so that the device goes from one batch to the next
// without waiting for the host.
func (in *gpuInstance) Run(b *infer.Batch) error {
	requests, rows := b.Requests, b.Rows
	if limit := in.model.sig.MaxBatch; limit > 0 && rows > limit || limit == 0 && len(requests) > 1 {
		return status.Errorf(status.Internal, "batch size %d for '%s', max allowed is %d", rows, in.model.sig.Name, max(limit, 1))
	}
	slot := <-in.free
	defer func() { in.free <- slot }()
	p, err := slot.planFor(requests, rows)
	if err != nil {
		return in.fault(err)
	}
	if err := slot.collect(p, requests); err != nil {
		return in.fault(err)
	}
	out := in.slots.take()
	if err := in.enqueue(slot, p, out, rows); err != nil {
		in.slots.put(out)
		return in.fault(err)
	}
	if b.Turn != nil {
		b.Turn.Await()
	}
	b.Times.InputsReady = in.now()
	err = in.await(slot, rows)
	b.Times.OutputsOut = in.now()
	if err != nil {
		in.slots.put(out)
		return in.fault(err)
	}
	out.hand(requests, rows)
	return nil
}

// collect gathers the batch's inputs in the slot, unless they are those of one
// request that lie in pinned memory already.
func (s *gpuSlot) collect(p *plan, requests []*infer.Request) error {
	if s.gathered = len(requests) > 1 || !s.direct(p, requests[0]); !s.gathered {
		return nil
	}
	s.sources = s.sources[:0]
	for i := range p.inputs {
		at := &p.inputs[i]
		s.sources = append(s.sources, s.region.mem[at.offset:at.offset+at.size])
	}
	return s.gather(p, requests, false)
}

// direct reports whether all inputs of a request can be copied to the device
// from where they were received.
func (s *gpuSlot) direct(p *plan, r *infer.Request) bool {
	s.sources = s.sources[:0]
	for i := range p.inputs {
		at := &p.inputs[i]
		input := at.in(r)
		if input == nil || !input.Data.Private || len(input.Data.First) != at.size || !inflight.IsDirect(input.Data.First) {
			return false
		}
		s.sources = append(s.sources, input.Data.First)
	}
	return true
}

// enqueue adds a batch's work to the streams. When it fails, nothing on the
// device uses the slots any more.
func (in *gpuInstance) enqueue(slot *gpuSlot, p *plan, out *slot, rows int) error {
	set, err := out.setFor(rows)
	if err != nil {
		return err
	}
	out.set = set
	dev := in.device
	if err := dev.Enter(); err != nil {
		return err
	}
	defer dev.Leave()
	alone := len(in.free) == inputSlots-1
	if !alone {
		if err := in.copyAside(slot, p); err != nil {
			return err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if alone {
		err = in.copyInputs(slot)
	} else {
		err = in.moveInputs(slot, p)
	}
	if err == nil {
		err = in.computeBatch(p, rows)
	}
	if err == nil {
		err = in.copyResults(slot, set)
	}
	if err != nil && dev.Record(slot.done, in.compute) == nil {
		_ = dev.Synchronize(slot.done) // the first error is more important
	}
	return err
}

// copyAside copies a batch's inputs to the slot's device memory while the batch
// before it computes.
func (in *gpuInstance) copyAside(slot *gpuSlot, p *plan) error {
	if slot.gathered {
		if err := in.device.CopyIn(slot.in, slot.region.mem[:p.size], in.copyIn); err != nil {
			return err
		}
		return in.device.Record(slot.copied, in.copyIn)
	}
	for i, src := range slot.sources {
		if err := in.device.CopyIn(slot.in+cuda.Address(p.inputs[i].offset), src, in.copyIn); err != nil {
			return err
		}
	}
	return in.device.Record(slot.copied, in.copyIn)
}

// moveInputs adds the copies from the slot's device memory to the model's.
func (in *gpuInstance) moveInputs(slot *gpuSlot, p *plan) error {
	if err := in.device.Wait(in.compute, slot.copied); err != nil {
		return err
	}
	for i := range p.inputs {
		at := &p.inputs[i]
		if err := in.device.Copy(in.inputs[i], slot.in+cuda.Address(at.offset), at.size, in.compute); err != nil {
			return err
		}
	}
	return nil
}

// copyInputs adds the copies of a batch that no other computes beside, straight
// to the model's inputs: a copy and the wait of one stream for another less.
func (in *gpuInstance) copyInputs(slot *gpuSlot) error {
	for i, src := range slot.sources {
		if err := in.device.CopyIn(in.inputs[i], src, in.compute); err != nil {
			return err
		}
	}
	return nil
}

// computeBatch adds the run of the model, padded to the next size with a graph.
func (in *gpuInstance) computeBatch(p *plan, rows int) error {
	g := in.graphFor(rows)
	for i := range p.inputs {
		if g == nil || g.rows == rows {
			break
		}
		used, whole := p.inputs[i].size, in.model.inputs[i].bytes(g.rows)
		if err := in.device.Zero(in.inputs[i]+cuda.Address(used), whole-used, in.compute); err != nil {
			return err
		}
	}
	if g != nil {
		return in.device.Launch(g.graph, in.compute)
	}
	if !in.graphs { // ONNX Runtime keeps nothing for the thread
		return in.submit(rows)
	}
	return in.thread.do(func() error {
		if err := in.device.Enter(); err != nil {
			return err
		}
		defer in.device.Leave()
		return in.submit(rows)
	})
}

// copyResults adds the copies of the outputs to host memory.
func (in *gpuInstance) copyResults(slot *gpuSlot, set *outputSet) error {
	dev, from := in.device, in.compute
	if slot.out != 0 {
		for i := range set.outs {
			if err := dev.Copy(slot.out+cuda.Address(slot.outputPlace[i]), in.outputs[i], len(set.outs[i].data), in.compute); err != nil {
				return err
			}
		}
		if err := dev.Record(slot.computed, in.compute); err != nil {
			return err
		}
		if err := dev.Wait(in.copyOut, slot.computed); err != nil {
			return err
		}
		from = in.copyOut
	}
	for i := range set.outs {
		src := in.outputs[i]
		if slot.out != 0 {
			src = slot.out + cuda.Address(slot.outputPlace[i])
		}
		if err := dev.CopyOut(set.outs[i].data, src, from); err != nil {
			return err
		}
	}
	return dev.Record(slot.done, from)
}

// await returns when a batch that was begun with so many rows is done. The
// thread is in the driver meanwhile.
func (in *gpuInstance) await(slot *gpuSlot, rows int) error {
	if err := in.device.Enter(); err != nil {
		return err
	}
	defer in.device.Leave()
	procs.Native.Begin()
	defer procs.Native.End()
	usual := &in.usual[bits.Len(uint(rows))]
	begin := time.Now()
	done, err := in.poll(slot.done, begin, usual.Load())
	if err == nil && !done {
		err = in.device.Synchronize(slot.done)
	}
	took := int64(time.Since(begin))
	usual.Store((7*usual.Load() + took) / 8)
	return err
}

const (
	// longestPoll is the longest run at whose end a core is used to notice it.
	// The driver's own way is an interrupt and a wake-up, which take 30 to 200 us.
	longestPoll = 4 * time.Millisecond
	// fewCores is below which number of cores that one is needed elsewhere.
	fewCores = 4
)

// poll sleeps for most of the usual time of a run and then asks until it is
// done or takes much longer.
func (in *gpuInstance) poll(e cuda.Event, begin time.Time, usual int64) (done bool, err error) {
	u := time.Duration(usual)
	if u == 0 || u > longestPoll || procs.Native.Cores() < fewCores {
		return false, nil
	}
	if nap := u*3/4 - 100*time.Microsecond; nap > 0 {
		sleep(nap)
	}
	for range 1 << 20 {
		if done, err = in.device.Done(e); done || err != nil || time.Since(begin) > 2*u {
			break
		}
	}
	return done, err
}

func (in *gpuInstance) now() time.Time { return in.born.Add(time.Since(in.born)) }

// fault gives an error its code and the model's name. The instance stays
// usable.
func (in *gpuInstance) fault(err error) error {
	var se *status.Error
	var oe *ort.Error
	var ce *cuda.Error
	switch {
	case errors.As(err, &se):
		return forModel(in.model.sig.Name, err)
	case errors.As(err, &oe), errors.As(err, &ce):
		return noMemory(in.device, status.Errorf(status.Internal, "model '%s': %v", in.model.sig.Name, err))
	}
	return status.Wrap(status.Internal, err, fmt.Sprintf("model '%s' could not be run; the server's log has the details", in.model.sig.Name))
}

// saysNoMemory reports whether an error's text is about memory of a GPU.
func saysNoMemory(err error) bool {
	text := err.Error()
	return strings.Contains(text, "out of memory") || strings.Contains(text, "OUT_OF_MEMORY") || strings.Contains(text, "Failed to allocate memory for requested buffer") ||
		strings.Contains(text, "is smaller than requested bytes") // of gpu_mem_limit
}
