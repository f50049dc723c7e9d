package onnx

import (
	"errors"
	"fmt"
	"slices"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
	"shoal/internal/backend/onnx/library"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// GPUs implements backend.Accelerated.
func (b *Backend) GPUs() int {
	n, _ := b.gpus()
	return n
}

// WhyNoGPUs implements backend.Accelerated.
func (b *Backend) WhyNoGPUs() string {
	if _, err := b.gpus(); err != nil {
		return err.Error()
	}
	return ""
}

// countGPUs returns the number of GPUs that models can run on, or why there are
// none. Without a driver it is quick: the machine has no GPU.
func (b *Backend) countGPUs() (int, error) {
	devices, err := b.gpu.Devices()
	if err != nil {
		return 0, fmt.Errorf("%w; run the model with kind: KIND_CPU, or install the driver", err)
	}
	n := devices.Count()
	if n == 0 {
		return 0, errors.New("NVIDIA's driver shows no GPU to this process (CUDA_VISIBLE_DEVICES, or the container's devices)")
	}
	if b.gpu.Provider == "" {
		return n, nil
	}
	if err := b.checkProvider(); err != nil {
		b.log.Warn("there are GPUs, but ONNX models run on the CPU", "gpus", n, "err", err)
		return 0, err
	}
	return n, nil
}

// checkProvider returns an error if ONNX Runtime cannot use GPUs.
func (b *Backend) checkProvider() error {
	lib, err := b.library()
	if err != nil {
		return err
	}
	available, err := lib.Providers()
	if err != nil {
		return err
	}
	if !slices.Contains(available, b.gpu.Provider+suffix) {
		return fmt.Errorf("the ONNX Runtime at %s is built without CUDA; run `shoal runtime install --gpu`", lib.Path())
	}
	for _, c := range library.Components(lib.Path()) {
		if c.Needed && c.Err != nil {
			return fmt.Errorf("%s: %w; %s", c.Name, c.Err, c.Hint)
		}
	}
	return nil
}

// device returns a GPU.
func (b *Backend) device(id int) (cuda.Device, error) {
	devices, err := b.gpu.Devices()
	if err != nil {
		return nil, err
	}
	return devices.Device(id)
}

// gpuUse returns a GPU, of whose memory nothing is counted yet.
func (b *Backend) gpuUse(id int) backend.GPUUse {
	use := backend.GPUUse{ID: id}
	if devices, err := b.gpu.Devices(); err == nil {
		use.UUID = devices.UUID(id)
	}
	return use
}

// arena returns how much memory of its GPU the session has reserved; m is that
// memory. Without a GPU of its own kind, as in tests, it is nothing.
func (u *usedSession) arena(m ort.Memory) int64 {
	if m == 0 {
		return 0
	}
	n, err := u.session.ArenaBytes(m)
	if err != nil {
		return 0 // a figure for operators, no reason to refuse the model
	}
	return n
}

// checkLimit returns an error when so much of a GPU's memory is in use that no
// more models are loaded.
func (b *Backend) checkLimit(dev cuda.Device, gpu int) error {
	limit, ok := b.options.LoadLimits[gpu]
	if !ok {
		return nil
	}
	if err := dev.Enter(); err != nil {
		return err
	}
	defer dev.Leave()
	free, total, err := dev.Memory()
	if err != nil {
		return err
	}
	if used := float64(total-free) / float64(total); used > limit {
		return status.Errorf(status.ResourceExhausted, "memory limit set for KIND_GPU [%d] has exceeded, model loading is rejected: %.0f %% of it are in use, "+
			"--model-load-gpu-limit allows %.0f %%", gpu, 100*used, 100*limit)
	}
	return nil
}

// memory returns the memory for the tensors of an instance.
func (b *Backend) memory(p backend.Placement) (backend.Memory, error) {
	if p.Kind != modelpb.ModelInstanceGroup_KIND_GPU {
		if b.options.Memory != nil {
			return b.options.Memory(p), nil
		}
		return backend.Pages{}, nil
	}
	dev, err := b.device(p.GPU)
	if err != nil {
		return nil, status.Errorf(status.Internal, "%v", err)
	}
	return cuda.Pinned{Device: dev}, nil
}
