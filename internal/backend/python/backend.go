// Package python runs models written in Python. Each instance has its own
// worker process, with the tensors in memory that both share. The engine uses
// it through the interfaces of package backend; a Backend and a loaded model
// may be used from many goroutines, an instance from one at a time.
package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/usermetric"
	"shoal/internal/worker"
	"shoal/python"
)

// Options are how workers are started.
type Options struct {
	// Python is the default interpreter: a path, a name in PATH, or the folder
	// of a virtual environment; empty for python3.
	Python string
	// Environ is the environment of workers, before the additions of a model
	// and the server.
	Environ []string
	// Cache is the folder for unpacked files: the worker's code and packed
	// environments.
	Cache string
	// Spare is used instead of Cache if that is empty or cannot be written to.
	// Other users may be able to write there.
	Spare  string
	Logger *slog.Logger // nil means none
	// Config has the settings that --backend-config=python,NAME=VALUE gives.
	Config map[string]string
	// ResponseQueueSize is how many bytes of a decoupled model's responses may
	// wait for one client; then the model has to wait. Zero means no limit.
	ResponseQueueSize int64
	// HandlerMetrics gets the lines of metrics that handlers of archives count; nil
	// discards them.
	HandlerMetrics func(line string)
	// MPS has instances of a model that share a GPU use it at the same time, through
	// NVIDIA's Multi-Process Service, which the backend starts. Temp is the folder for
	// its sockets.
	MPS  bool
	Temp func() (string, error)
	// Metrics collects the metrics of models' own code; nil discards them.
	Metrics *usermetric.Registry
}

// A Backend runs Python models.
type Backend struct {
	options   Options
	log       *slog.Logger
	born      time.Time
	handler   string                 // the Python module that runs models, "" for the default
	cache     func() (string, error) // the folder for unpacked files
	code      func() (string, error) // the folder with the worker's code
	unpacking sync.Mutex             // held while an environment is unpacked
	mps       *mps                   // nil when workers share GPUs in turns
}

// New returns a backend. It starts nothing yet.
func New(o Options) *Backend {
	b := &Backend{options: o, log: o.Logger, born: time.Now()}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if o.MPS {
		b.mps = &mps{environ: o.Environ, temp: o.Temp, usual: mpsUsual, log: b.log}
	}
	b.cache = func() (string, error) { return usableCache(o.Cache, o.Spare) }
	b.code = unpacker(python.Files, b.cache)
	return b
}

// Close ends what workers share. It is for after the last model is closed.
func (b *Backend) Close() {
	if b.mps != nil {
		b.mps.close()
	}
}

// Name implements backend.Backend.
func (b *Backend) Name() string { return "python" }

// Probe implements backend.Backend.
func (b *Backend) Probe(src backend.Source) backend.Probed { return probed{b, src} }

// A probed is a model that is not loaded yet.
type probed struct {
	backend *Backend
	src     backend.Source
}

// Close implements backend.Probed. Complete keeps nothing.
func (probed) Close() {}

// Complete implements backend.Probed. It asks the model's own code, in a worker
// process that it starts only for this.
func (p probed) Complete(ctx context.Context, cfg *modelpb.ModelConfig) error {
	b, src := p.backend, p.src
	if !hasToBeAsked(src, cfg) {
		return nil
	}
	set, err := b.settings(src, cfg)
	if err != nil {
		return forModel(src.Model, err)
	}
	completed, err := b.describe(ctx, src, set, cfg)
	if err != nil {
		return forModel(src.Model, err)
	}
	if completed == nil {
		return nil
	}
	cfg.MaxBatchSize = completed.GetMaxBatchSize()
	cfg.Input, cfg.Output = completed.GetInput(), completed.GetOutput()
	cfg.SchedulingChoice = completed.SchedulingChoice
	cfg.ModelTransactionPolicy = completed.GetModelTransactionPolicy()
	if len(cfg.GetInstanceGroup()) == 0 {
		cfg.InstanceGroup = completed.GetInstanceGroup()
	}
	return nil
}

// hasToBeAsked reports whether the model's code may add something to the
// configuration. Importing the code can take long, so it is not done without
// need.
func hasToBeAsked(src backend.Source, cfg *modelpb.ModelConfig) bool {
	if isArchive(cfg) {
		return false
	}
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return true
	}
	code, err := os.ReadFile(modelFile(src.Dir, cfg))
	return err != nil || bytes.Contains(code, []byte("auto_complete_config"))
}

// describe returns the configuration that the model's code makes from cfg, nil
// when it makes none.
func (b *Backend) describe(ctx context.Context, src backend.Source, set settings, cfg *modelpb.ModelConfig) (*modelpb.ModelConfig, error) {
	msg, err := b.newInitMessage("describe", src, cfg)
	if err != nil {
		return nil, err
	}
	first, err := json.Marshal(msg)
	if err != nil {
		return nil, err
	}
	cmd, err := b.command(src, set, backend.Placement{Name: src.Model, Count: 1})
	if err != nil {
		return nil, err
	}
	l, err := startLink(cmd, first, fileName(cfg), nil, false)
	if err != nil {
		return nil, b.startFault(cmd, err)
	}
	if set.startTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, set.startTimeout)
		defer cancel()
	}
	payload, err := l.await(ctx, frameDescribed, set.startTimeout)
	if err != nil {
		return nil, err
	}
	l.Stop()
	var answer struct{ Config json.RawMessage }
	if err := json.Unmarshal(payload, &answer); err != nil {
		return nil, status.Wrap(status.Internal, err, "the configuration that the model's code gives cannot be read")
	}
	if len(answer.Config) == 0 || string(answer.Config) == "null" {
		return nil, nil
	}
	completed := &modelpb.ModelConfig{}
	if err := protojson.Unmarshal(answer.Config, completed); err != nil {
		return nil, status.Errorf(status.InvalidArgument, "the configuration that the model's code gives is not valid: %v", err)
	}
	return completed, nil
}

// command returns the command that starts the worker at p.
func (b *Backend) command(src backend.Source, set settings, p backend.Placement) (worker.Command, error) {
	code, err := b.code()
	if err != nil {
		return worker.Command{}, status.Errorf(status.Unavailable, "%v", err)
	}
	env, err := b.environment(set, p)
	if err != nil {
		return worker.Command{}, err
	}
	return worker.Command{
		Model: src.Model, Name: p.Name, Log: b.log,
		Path: set.python, Args: []string{code, p.Name}, Env: env,
	}, nil
}

// startFault adds advice to the error of an interpreter that could not be
// started.
func (b *Backend) startFault(cmd worker.Command, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return status.Errorf(status.Unavailable, "%v; give a Python interpreter (3.9 or newer, with numpy) or a virtual environment with --python or the model's parameter %s", err, paramPython)
	}
	return err
}
