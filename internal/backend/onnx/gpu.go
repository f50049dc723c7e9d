package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// inputSlots is how many batches a GPU instance has at a time: while one
// computes, the inputs of the next are gathered and copied, and its work queues
// up behind the first's.
const inputSlots = 2

// largeOutput is from where on the outputs of a batch are copied out on a stream
// of their own, so that the next batch need not wait for it. Below, the two
// waits that this takes cost more.
const largeOutput = 1 << 20

// A gpuInstance runs batches of a model whose tensors have fixed shapes on a
// GPU. All work of a batch goes into streams of its own without waiting; only
// its end is waited for:
//
//	copy stream     host memory of the input slot → device memory of the slot
//	compute stream  → the model's inputs, the model, its outputs →
//	                host memory of the output slot
//
// ONNX Runtime's work is recorded once for each of a few batch sizes and
// launched as a CUDA graph; a batch is padded with zeros to the next such size.
type gpuInstance struct {
	model   *loaded
	device  cuda.Device
	thread  *thread // that calls ONNX Runtime
	use     *usedSession
	memory  ort.Memory // the device's
	options *ort.RunOptions
	call    *ort.Call // of the thread
	slots   slotPool
	born    time.Time
	free    chan *gpuSlot
	all     []*gpuSlot

	graphs bool // the session is prepared for graphs
	gpu    backend.GPUUse

	compute, copyIn, copyOut cuda.Stream
	block                    cuda.Address   // all device memory of the instance
	inputs, outputs          []cuda.Address // of the model, in the order of its signature

	usual [32]atomic.Int64 // how long a batch takes, in ns, by the number of bits of its rows

	mu     sync.Mutex       // protects the fields below, and the order of the compute stream
	sizes  []*graphSize     // captured, rising
	values map[int]*tensors // by rows
}

// A gpuSlot holds the inputs of a batch on their way to the device.
type gpuSlot struct {
	inputSlot
	in, out     cuda.Address // the slot's device memory; out is 0 for small outputs
	copied      cuda.Event   // the inputs are in the slot's device memory
	computed    cuda.Event   // the outputs are in the slot's device memory
	done        cuda.Event   // the outputs are in host memory
	outputPlace []int        // where each output is in out
	sources     [][]byte     // where each input of the batch is on the host
	gathered    bool         // that is in the slot's host memory, one after the other
}

// tensors are ONNX Runtime's tensors over the model's device memory for a batch
// of so many rows.
type tensors struct{ in, out []ort.Value }

// runsInStreams reports whether a model can run as a gpuInstance: all shapes are
// known from the number of rows alone.
func (m *loaded) runsInStreams() bool {
	if len(m.batchInputs) > 0 || m.inputBytes == 0 || m.outputBytes == 0 || m.opening.set.otherAccelerator() {
		return false
	}
	for i := range m.inputs {
		if x := &m.inputs[i]; !x.bindable() || x.Ragged || x.Optional {
			return false
		}
	}
	return !slices.ContainsFunc(m.outputs, func(x port) bool { return !x.bindable() })
}

// otherAccelerator reports whether the model asks for a provider of GPUs that
// has streams of its own, such as TensorRT.
func (s settings) otherAccelerator() bool {
	return slices.ContainsFunc(s.gpuAccelerators, func(a *modelpb.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator) bool {
		return !strings.EqualFold(a.GetName(), "cuda")
	})
}

// startGPU returns an instance on a GPU.
func (m *loaded) startGPU(p backend.Placement) (backend.Instance, error) {
	dev, err := m.backend.device(p.GPU)
	if err != nil && outOfMemory(err) { // for this process's share of the driver
		return nil, status.Errorf(status.ResourceExhausted, "instance %s: %v: other processes have all of it; nvidia-smi lists them", p.Name, err)
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArgument, "instance %s: %v", p.Name, err)
	}
	if err := m.backend.checkLimit(dev, p.GPU); err != nil {
		return nil, forModel(m.sig.Name, err)
	}
	if !m.runsInStreams() {
		use, err := m.takeSession(p)
		if err != nil {
			return nil, err
		}
		return newInstance(m, use), nil
	}
	start := time.Now()
	w := way{graphs: m.opening.set.graphs, channelsLast: m.prefersChannelsLast(dev, p)}
	in, err := m.newGPUInstance(dev, p, w)
	var unfit *noGraphsError
	if errors.As(err, &unfit) { // anew, on another thread: a failed recording leaves an error behind in CUDA's runtime
		m.noGraphs.Do(func() {
			m.backend.log.Warn("the model runs without CUDA graphs, so that small batches take longer", "model", m.sig.Name, "err", unfit.why)
		})
		w.graphs = false
		in, err = m.newGPUInstance(dev, p, w)
	}
	if err != nil {
		return nil, noMemory(dev, status.Errorf(status.Internal, "instance %s: %v", p.Name, err))
	}
	m.backend.log.Info("instance is on a GPU", "model", m.sig.Name, "instance", p.Name, "gpu", p.GPU, "graphs", in.captured(),
		"channels_last", w.channelsLast, "after", time.Since(start).Round(time.Millisecond))
	return in, nil
}

// A way is how an instance runs the model.
type way struct {
	graphs       bool
	channelsLast bool // convolutions in the layout of tensor cores
	trial        bool // only batches of one row and of the largest size will run
}

func (m *loaded) newGPUInstance(dev cuda.Device, p backend.Placement, w way) (*gpuInstance, error) {
	in := &gpuInstance{model: m, device: dev, gpu: m.backend.gpuUse(p.GPU), thread: startThread(), born: time.Now(), values: make(map[int]*tensors)}
	in.free = make(chan *gpuSlot, inputSlots)
	if err := in.thread.do(func() error { return in.open(p, w) }); err != nil {
		_ = in.Close() // the first error is more important
		return nil, err
	}
	return in, nil
}

// noMemory adds to an error for a lack of GPU memory what there is and what
// would help.
func noMemory(dev cuda.Device, err error) error {
	if !outOfMemory(err) {
		return err
	}
	if dev.Enter() != nil {
		return err
	}
	defer dev.Leave()
	free, total, failed := dev.Memory()
	if failed != nil {
		return err
	}
	return status.Errorf(status.ResourceExhausted, "%s; the GPU has %d MB free of %d MB: unload a model, use fewer instances or a smaller max_batch_size",
		status.Public(err), free>>20, total>>20)
}

// open makes what the instance has on the device. What it has made when it
// fails, Close frees.
func (in *gpuInstance) open(p backend.Placement, w way) error {
	if err := in.device.Enter(); err != nil {
		return err
	}
	defer in.device.Leave()
	for _, s := range []*cuda.Stream{&in.compute, &in.copyIn, &in.copyOut} {
		var err error
		if *s, err = in.device.NewStream(); err != nil {
			return err
		}
	}
	if err := in.openSession(p, w); err != nil {
		return err
	}
	if err := in.layOut(); err != nil {
		return err
	}
	if err := in.warmUp(w); err != nil {
		return err
	}
	in.gpu.Bytes += in.use.arena(in.memory)
	return nil
}

// GPU implements backend.OnGPU.
func (in *gpuInstance) GPU() (backend.GPUUse, bool) { return in.gpu, true }

// openSession makes the session. ONNX Runtime refuses models that it could not
// record.
func (in *gpuInstance) openSession(p backend.Placement, w way) error {
	m := in.model
	o, err := m.opening.set.options(m.lib, m.cfg, p, m.backend.gpu)
	if err != nil {
		return err
	}
	in.backendOptions(o.Providers, w)
	s, err := m.lib.NewSession(m.opening.path, o)
	if err != nil {
		if w.graphs && !saysNoMemory(err) {
			return &noGraphsError{err}
		}
		return err
	}
	in.use = &usedSession{session: s, memory: cuda.Pinned{Device: in.device}, kind: p.Kind, gpu: p.GPU}
	in.slots.model, in.slots.use = m, in.use
	if w.graphs {
		if err := in.checkGraphs(s); err != nil {
			return err
		}
	}
	run := map[string]string{"disable_synchronize_execution_providers": "1"}
	for k, v := range m.opening.set.run {
		run[k] = v
	}
	if in.graphs = w.graphs; w.graphs {
		run["gpu_graph_id"] = "-1" // we record the graphs ourselves: ONNX Runtime's belong to a thread and block every other one meanwhile
	}
	if in.options, err = m.lib.NewRunOptions(run); err != nil {
		return err
	}
	in.call = ort.NewCall(s, in.options)
	if name := m.backend.gpu.Memory; name != "" {
		in.memory, err = m.lib.NewMemory(name, p.GPU)
	}
	return err
}

// checkGraphs returns an error for a model of which the processor reads or writes an
// input or output, such as a shape: a graph would keep what that was when it was
// recorded. Where ONNX Runtime does not say, integers are taken for such inputs.
func (in *gpuInstance) checkGraphs(s *ort.Session) error {
	ask := in.model.backend.gpu.OnHost
	if ask == nil {
		return nil
	}
	names, err := ask(s)
	if errors.Is(err, ort.ErrUnknown) {
		for i := range in.model.inputs {
			if x := &in.model.inputs[i]; x.Type != tensor.FP32 && x.Type != tensor.FP16 && x.Type != tensor.BF16 {
				names = append(names, x.Name)
			}
		}
	} else if err != nil {
		return err
	}
	if len(names) > 0 {
		return &noGraphsError{fmt.Errorf("the processor uses '%s', and a graph would not see it change", strings.Join(names, "', '"))}
	}
	return nil
}

// backendOptions adds the instance's stream to the options of the CUDA
// provider.
func (in *gpuInstance) backendOptions(providers []ort.Provider, w way) {
	for _, p := range providers {
		if p.Name != "CUDA" {
			continue
		}
		p.Options["has_user_compute_stream"] = "1"
		p.Options["user_compute_stream"] = strconv.FormatUint(uint64(in.compute), 10)
		delete(p.Options, "enable_cuda_graph")
		if w.graphs {
			p.Options["enable_cuda_graph"] = "1"
		}
		for name, value := range channelsLast {
			if _, given := p.Options[name]; w.channelsLast && !given {
				p.Options[name] = value
			}
		}
	}
}

// layOut reserves the device's memory: the model's inputs and outputs at fixed
// addresses, as graphs want them, and the slots'.
func (in *gpuInstance) layOut() error {
	m := in.model
	rows := max(1, m.sig.MaxBatch)
	size := 0
	place := func(list []port) []int {
		places := make([]int, len(list))
		for i := range list {
			places[i] = size
			size = alignDevice(size + list[i].bytes(rows))
		}
		return places
	}
	ins, outs := place(m.inputs), place(m.outputs)
	var slotIn, slotOut [inputSlots]int
	staged := m.outputBytes >= largeOutput
	for i := range slotIn {
		slotIn[i] = size
		size = alignDevice(size + m.inputBytes)
		slotOut[i] = size
		if staged {
			size = alignDevice(size + m.outputBytes)
		}
	}
	var err error
	if in.block, err = in.device.Alloc(size); err != nil {
		return err
	}
	in.gpu.Bytes += int64(size)
	for _, at := range ins {
		in.inputs = append(in.inputs, in.block+cuda.Address(at))
	}
	for _, at := range outs {
		in.outputs = append(in.outputs, in.block+cuda.Address(at))
	}
	for i := range slotIn {
		s := &gpuSlot{inputSlot: newInputSlot(m, in.use), in: in.block + cuda.Address(slotIn[i])}
		in.all = append(in.all, s)
		if staged {
			s.out = in.block + cuda.Address(slotOut[i])
			at := 0
			for k := range m.outputs {
				s.outputPlace = append(s.outputPlace, at)
				at = align(at + m.outputs[k].bytes(rows))
			}
		}
		for _, e := range []*cuda.Event{&s.copied, &s.computed, &s.done} {
			if *e, err = in.device.NewEvent(m.opening.set.spin && e == &s.done); err != nil {
				return err
			}
		}
		if err := s.region.resize(m.inputBytes); err != nil {
			return err
		}
		in.free <- s
	}
	if receive := m.backend.options.Receive; receive != nil {
		receive(cuda.Pinned{Device: in.device}.Direct)
	}
	return nil
}

// alignDevice rounds up to the alignment of the device's own allocator.
func alignDevice(n int) int { return (n + 511) &^ 511 }

// bytes returns the size of a bindable tensor in a batch of so many rows.
func (x *port) bytes(rows int) int {
	n, _ := x.boundShape(rows).Bytes(x.Type)
	return int(n)
}

// settle waits for the work that f adds to the compute stream.
func (in *gpuInstance) settle(f func() error) error {
	e := in.all[0].done
	if err := f(); err != nil {
		return err
	}
	if err := in.device.Record(e, in.compute); err != nil {
		return err
	}
	return in.device.Synchronize(e)
}

// submit adds a run of the model to the compute stream. It is for the
// instance's thread.
func (in *gpuInstance) submit(rows int) error {
	t, err := in.tensorsFor(rows)
	if err != nil {
		return err
	}
	return in.device.Submit(in.compute, func() error { return in.runSession(t) })
}

func (in *gpuInstance) runSession(t *tensors) error {
	return in.call.Run(in.model.inputNames, t.in, in.model.outputNames, t.out)
}

// tensorsFor returns the tensors for a batch of so many rows, cached or new.
func (in *gpuInstance) tensorsFor(rows int) (*tensors, error) {
	if t := in.values[rows]; t != nil {
		return t, nil
	}
	if len(in.values) >= maxSets {
		for rows, t := range in.values { // any: what is used often comes back
			t.release(in.model.lib)
			delete(in.values, rows)
			break
		}
	}
	t := new(tensors)
	err := errors.Join(t.add(in, &t.in, in.model.inputs, in.inputs, rows), t.add(in, &t.out, in.model.outputs, in.outputs, rows))
	if err != nil {
		t.release(in.model.lib)
		return nil, err
	}
	in.values[rows] = t
	return t, nil
}

func (t *tensors) add(in *gpuInstance, to *[]ort.Value, list []port, at []cuda.Address, rows int) error {
	for i := range list {
		shape := list[i].boundShape(rows)
		v, err := in.model.lib.NewTensorIn(in.memory, list[i].Type, shape, uintptr(at[i]), list[i].bytes(rows))
		if err != nil {
			return err
		}
		*to = append(*to, v)
	}
	return nil
}

func (t *tensors) release(lib *ort.Library) {
	for _, v := range slices.Concat(t.in, t.out) {
		lib.Release(v)
	}
}

// Trim implements backend.Trimmer: it frees the outputs that nobody holds.
func (in *gpuInstance) Trim() { in.slots.trim() }

// Close implements backend.Instance.
func (in *gpuInstance) Close() error {
	in.slots.close()
	err := in.thread.do(in.close)
	in.thread.close()
	return err
}

// close frees everything on the device.
func (in *gpuInstance) close() error {
	if err := in.device.Enter(); err != nil {
		return err
	}
	defer in.device.Leave()
	in.dropGraphs()
	for _, t := range in.values {
		t.release(in.model.lib)
	}
	for _, s := range in.all {
		s.dropPlans()
		s.region.free()
		for _, e := range []cuda.Event{s.copied, s.computed, s.done} {
			if e != 0 {
				in.device.DestroyEvent(e)
			}
		}
	}
	if in.use != nil {
		in.use.session.Close()
	}
	if in.options != nil {
		in.options.Close()
	}
	if in.memory != 0 {
		in.model.lib.FreeMemory(in.memory)
	}
	if in.block != 0 {
		in.device.Free(in.block)
	}
	for _, s := range []cuda.Stream{in.compute, in.copyIn, in.copyOut} {
		if s != 0 {
			in.device.DestroyStream(s)
		}
	}
	return nil
}

// outOfMemory reports whether an error is a lack of GPU memory. ONNX Runtime
// has only a text for it.
func outOfMemory(err error) bool {
	var ce *cuda.Error
	return errors.As(err, &ce) && ce.OutOfMemory() || saysNoMemory(err)
}
