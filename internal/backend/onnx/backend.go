// Package onnx runs ONNX models with ONNX Runtime, whose shared library is
// loaded when the first model needs it. The engine uses it through the
// interfaces of package backend; a Backend and a loaded model may be used from
// many goroutines, an instance from one at a time.
package onnx

import (
	"log/slog"
	"strconv"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/status"
)

// Options are where ONNX Runtime is and the settings for all models.
type Options struct {
	// Library returns the path of ONNX Runtime's library. It is called once,
	// for the first model; its error fails only ONNX models.
	Library func() (string, error)
	Logger  *slog.Logger // nil means none
	// Config has the settings that --backend-config=onnxruntime,NAME=VALUE
	// gives: default-max-batch-size, enable-global-threadpool,
	// intra_op_thread_count and inter_op_thread_count (the latter two for the
	// global pool).
	Config map[string]string
	// Memory returns the memory for the tensors of an instance on a CPU; nil
	// means backend.Pages. Instances on GPUs have pinned memory.
	Memory func(backend.Placement) backend.Memory
	// GPU is how instances get onto GPUs; the zero value means NVIDIA's driver
	// and ONNX Runtime's CUDA provider.
	GPU GPU
	// Receive is called with a source of pinned memory for requests when a model
	// runs on a GPU; nil means that requests are received elsewhere.
	Receive func(source func(n int) []byte)
	// LoadLimits are the fractions of GPUs' memory, by their numbers, beyond
	// whose use no instance is started.
	LoadLimits map[int]float64
}

// A GPU is how instances get onto GPUs.
type GPU struct {
	Devices  func() (cuda.Devices, error)
	Provider string // the execution provider, "" for none: then devices' memory is the host's
	Memory   string // ONNX Runtime's name of the devices' memory
	// OnHost returns the inputs and outputs that are not in the devices' memory;
	// nil means none.
	OnHost func(*ort.Session) ([]string, error)
}

var nvidia = GPU{Devices: func() (cuda.Devices, error) { return cuda.Open() }, Provider: "CUDA", Memory: "Cuda", OnHost: (*ort.Session).OnHost}

// A Backend runs ONNX models.
type Backend struct {
	options Options
	log     *slog.Logger
	library func() (*ort.Library, error)
	gpu     GPU
	// gpus is the number of GPUs, with why there are none.
	gpus  func() (int, error)
	pages hugePages
}

// New returns a backend. It loads nothing yet.
func New(o Options) *Backend {
	b := &Backend{options: o, log: o.Logger, gpu: o.GPU}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.pages.log = b.log
	if b.gpu.Devices == nil {
		b.gpu = nvidia
	}
	b.gpus = sync.OnceValues(b.countGPUs)
	b.library = sync.OnceValues(b.openLibrary)
	return b
}

// Name implements backend.Backend.
func (b *Backend) Name() string { return "onnxruntime" }

// Probe implements backend.Backend.
func (b *Backend) Probe(src backend.Source) backend.Probed { return &probed{backend: b, src: src} }

// openLibrary finds and loads ONNX Runtime.
func (b *Backend) openLibrary() (*ort.Library, error) {
	threads, err := b.threads()
	if err != nil {
		return nil, err
	}
	path, err := b.options.Library()
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%v", err)
	}
	start := time.Now()
	lib, err := ort.Open(path, threads)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%v; run `shoal runtime list` to see what was found, or `shoal runtime install` to get one that works", err)
	}
	b.log.Info("loaded ONNX Runtime", "path", path, "version", lib.Version(), "after", time.Since(start).Round(time.Millisecond))
	return lib, nil
}

// threads returns the backend's settings for shared thread pools.
func (b *Backend) threads() (ort.Threads, error) {
	var t ort.Threads
	for name, to := range map[string]*int{"intra_op_thread_count": &t.Intra, "inter_op_thread_count": &t.Inter} {
		if v, ok := b.options.Config[name]; ok {
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 {
				return t, badSetting(name, v, "a number, 0 for one per core")
			}
			*to = n
		}
	}
	if v, ok := b.options.Config["enable-global-threadpool"]; ok {
		on, err := parseBool(v)
		if err != nil {
			return t, badSetting("enable-global-threadpool", v, "0 or 1")
		}
		t.Global = on
	}
	return t, nil
}

func badSetting(name, value, want string) error {
	return status.Errorf(status.InvalidArgument, "--backend-config=onnxruntime,%s=%s: expected %s", name, value, want)
}

// defaultMaxBatch returns the max_batch_size of models that can batch and do
// not set it.
func (b *Backend) defaultMaxBatch() (int, error) {
	const name = "default-max-batch-size"
	v, ok := b.options.Config[name]
	if !ok {
		return 4, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, badSetting(name, v, "a number")
	}
	return max(n, 0), nil
}

// forModel adds the model's name to a client's error text.
func forModel(name string, err error) error {
	return status.Errorf(status.CodeOf(err), "model '%s': %s", name, status.Public(err))
}
