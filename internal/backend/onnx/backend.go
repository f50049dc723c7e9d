// Package onnx runs ONNX models with ONNX Runtime, whose shared library is
// loaded when the first model needs it. The engine uses it through the
// interfaces of package backend; a Backend and a loaded model may be used from
// many goroutines, an instance from one at a time.
package onnx

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// Options say where ONNX Runtime is and what holds for all models.
type Options struct {
	// Library returns the path of ONNX Runtime's library. It is called once,
	// for the first model; its error fails ONNX models only.
	Library func() (string, error)
	Logger  *slog.Logger // nil means none
	// Config has the settings that --backend-config=onnxruntime,NAME=VALUE
	// gives: default-max-batch-size, enable-global-threadpool,
	// intra_op_thread_count and inter_op_thread_count (the latter two for the
	// global pool).
	Config map[string]string
}

// A Backend runs ONNX models.
type Backend struct {
	options Options
	log     *slog.Logger
	library func() (*ort.Library, error)

	mu      sync.Mutex // protects the fields below
	pending map[string]*pending
}

// New returns a backend. It loads nothing yet.
func New(o Options) *Backend {
	b := &Backend{options: o, log: o.Logger, pending: make(map[string]*pending)}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.library = sync.OnceValues(b.openLibrary)
	return b
}

// Name implements backend.Backend.
func (b *Backend) Name() string { return "onnxruntime" }

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

// threads returns what the backend's settings say of shared thread pools.
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
// not say how much.
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

// Complete implements backend.Backend.
//
// What a graph says of itself is asked of a session rather than read from the
// file: ONNX Runtime infers shapes that the file leaves out, and Triton
// completes from those. The session is kept for the Open that follows.
func (b *Backend) Complete(ctx context.Context, src backend.Source, cfg *modelpb.ModelConfig) error {
	if len(cfg.GetInput())+len(cfg.GetBatchInput()) > 0 && len(cfg.GetOutput()) > 0 {
		return nil // nothing to fill in, so nothing to load for it
	}
	limit, err := b.defaultMaxBatch()
	if err != nil {
		return err
	}
	o, err := b.opening(src, cfg)
	if err != nil {
		return err
	}
	s, err := b.session(o)
	if err != nil {
		return err
	}
	graph, err := describe(s)
	if err != nil {
		s.Close()
		return forModel(src.Model, err)
	}
	notes, err := model.Complete(cfg, graph, limit)
	if err != nil {
		s.Close()
		return err
	}
	for _, n := range notes {
		b.log.Info(n, "model", src.Model)
	}
	b.keep(o, s)
	return ctx.Err()
}

// An opening is all that is needed to make a session.
type opening struct {
	lib     *ort.Library
	path    string
	stamp   stamp
	options ort.Options
	set     settings
}

// opening works out how a model is to be opened.
func (b *Backend) opening(src backend.Source, cfg *modelpb.ModelConfig) (opening, error) {
	set, err := parseSettings(cfg)
	if err != nil {
		return opening{}, forModel(src.Model, err)
	}
	path, err := modelFile(src, cfg)
	if err != nil {
		return opening{}, err
	}
	at, err := stampOf(path)
	if err != nil {
		return opening{}, status.Errorf(status.Unavailable, "model '%s': %v", src.Model, err)
	}
	lib, err := b.library()
	if err != nil {
		return opening{}, err
	}
	o := opening{lib: lib, path: path, stamp: at, set: set}
	o.options, err = set.options(lib, cfg, firstPlacement(cfg))
	return o, err
}

// A pending is a session that Complete made and Open has not claimed yet.
type pending struct {
	opening opening
	session *ort.Session
	timer   *time.Timer
}

// claimTime is how long an unclaimed session is kept. Open follows Complete at
// once unless the model is refused in between.
const claimTime = 30 * time.Second

// keep holds a session for Open.
func (b *Backend) keep(o opening, s *ort.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.pending[o.path]; old != nil {
		old.drop()
	}
	p := &pending{opening: o, session: s}
	p.timer = time.AfterFunc(claimTime, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.pending[o.path] == p {
			delete(b.pending, o.path)
			p.session.Close()
		}
	})
	b.pending[o.path] = p
}

func (p *pending) drop() {
	p.timer.Stop()
	p.session.Close()
}

// session returns the session that Complete left for the same file and options,
// or a new one.
func (b *Backend) session(o opening) (*ort.Session, error) {
	b.mu.Lock()
	p := b.pending[o.path]
	delete(b.pending, o.path)
	b.mu.Unlock()
	if p != nil {
		p.timer.Stop()
		if p.opening.stamp == o.stamp && reflect.DeepEqual(p.opening.options, o.options) {
			return p.session, nil
		}
		p.session.Close()
	}
	s, err := o.lib.NewSession(o.path, o.options)
	if err != nil {
		return nil, status.Errorf(status.Internal, "%v", err)
	}
	return s, nil
}

// forModel puts the model's name in front of what a client is told.
func forModel(name string, err error) error {
	return status.Errorf(status.CodeOf(err), "model '%s': %s", name, status.Public(err))
}

// describe says what a session's model is.
func describe(s *ort.Session) (model.Graph, error) {
	var g model.Graph
	for _, part := range []struct {
		list func() ([]ort.TensorInfo, error)
		to   *[]model.GraphTensor
	}{{s.Inputs, &g.Inputs}, {s.Outputs, &g.Outputs}, {s.Overridable, &g.Overridable}} {
		infos, err := part.list()
		if err != nil {
			return g, status.Errorf(status.Internal, "%v", err)
		}
		if part.to == &g.Overridable { // they need not be sent, so they need not be such as can be
			infos = slices.DeleteFunc(infos, func(t ort.TensorInfo) bool { return t.Kind != "" || t.Type == tensor.Invalid })
		}
		if *part.to, err = graphOf(infos); err != nil {
			return g, err
		}
	}
	return g, nil
}
