// Package python runs models written in Python, each instance in a worker
// process of its own, with the tensors in memory that both share. The engine uses
// it through the interfaces of package backend; a Backend and a loaded model may
// be used from many goroutines, an instance from one at a time.
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

// Options say how workers are started.
type Options struct {
	// Python is the interpreter of models that name none: a path, a name in
	// PATH, or the folder of a virtual environment; empty for python3.
	Python string
	// Environ is the environment that workers are given, before what a model
	// and the server add to it.
	Environ []string
	// Cache is the folder for what is unpacked: the worker's code and packed
	// environments.
	Cache string
	// Spare is used in place of Cache where that is empty or cannot be written
	// to. It may lie where other users can write.
	Spare  string
	Logger *slog.Logger // nil means none
	// Config has the settings that --backend-config=python,NAME=VALUE gives.
	Config map[string]string
	// ResponseQueueSize is how many bytes of a decoupled model's responses wait
	// for one client: the model is held up before there are more. Zero means that
	// it is not.
	ResponseQueueSize int64
	// Metrics takes what models' own code counts; nil means that it is not kept.
	Metrics *usermetric.Registry
}

// A Backend runs Python models.
type Backend struct {
	options   Options
	log       *slog.Logger
	born      time.Time
	handler   string                 // the Python module that runs models, "" for the usual one
	cache     func() (string, error) // the folder for what is unpacked
	code      func() (string, error) // the folder with the worker's code
	unpacking sync.Mutex             // held while an environment is unpacked
}

// New returns a backend. It starts nothing yet.
func New(o Options) *Backend {
	b := &Backend{options: o, log: o.Logger, born: time.Now()}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.cache = func() (string, error) { return usableCache(o.Cache, o.Spare) }
	b.code = unpacker(python.Files, b.cache)
	return b
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
// process that it starts for this alone.
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

// hasToBeAsked reports whether the model's code may have something to add to the
// configuration. Code can take long to import, so it is not asked in vain.
func hasToBeAsked(src backend.Source, cfg *modelpb.ModelConfig) bool {
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return true
	}
	code, err := os.ReadFile(modelFile(src.Dir, cfg))
	return err != nil || bytes.Contains(code, []byte("auto_complete_config"))
}

// describe returns the configuration that the model's code makes of cfg, nil
// when it has nothing to say.
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
	l, err := startLink(cmd, first, fileName(cfg), nil)
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

// command returns how the worker at p is started.
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

// startFault says what to do about an interpreter that could not be started.
func (b *Backend) startFault(cmd worker.Command, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return status.Errorf(status.Unavailable, "%v; give a Python interpreter (3.9 or newer, with numpy) or a virtual environment with --python or the model's parameter %s", err, paramPython)
	}
	return err
}
