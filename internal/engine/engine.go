package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/reject"
	"shoal/internal/repository"
	"shoal/internal/sched"
	"shoal/internal/shm"
	"shoal/internal/status"
)

// Options say what an engine serves and how.
type Options struct {
	Name         string // the server's name in its metadata
	Version      string
	Repositories []string
	Backends     []backend.Backend

	// ConfigName chooses configs/<ConfigName>.pbtxt over config.pbtxt.
	ConfigName string
	// NoAutoComplete leaves configurations as they are written.
	NoAutoComplete bool
	// AllOrNothing keeps the server from becoming ready when a model fails to
	// load at the start; LoadAll then returns why.
	AllOrNothing bool
	// LooseReadiness makes the server ready even when a model is not.
	LooseReadiness bool
	// Limiter holds back instances by the resources that they share; nil when
	// nothing does.
	Limiter *sched.Limiter
	// HoldBatches keeps the first requests of each batching model queued until
	// there are so many; for tests.
	HoldBatches int
	// LoadThreads is how many models load at once.
	LoadThreads int
	// Arrived, unless nil, is told of each request that was checked, before it is
	// scheduled. It must not block, nor keep what it is given but the signature.
	Arrived func(sig *model.Signature, version int64, r *infer.Request)
	// ComputeTimes keeps how the times of an execution's parts are spread;
	// without, only their sums are known.
	ComputeTimes bool
	// ResponseQueueSize is how many bytes of a decoupled model's responses to
	// one request may wait for a client that reads slowly;
	// DefaultResponseQueueSize when it is zero.
	ResponseQueueSize int64

	// SharedMemory knows the memory that clients lend; nil when they may not.
	SharedMemory *shm.Registry

	Log *slog.Logger
}

// An Engine serves the models of its repositories.
type Engine struct {
	opt      Options
	backends map[string]backend.Backend
	log      *slog.Logger

	stopping atomic.Bool
	loaded   atomic.Bool // every model was tried
	models   atomic.Pointer[map[string]*entry]

	mu      sync.Mutex      // serialises the changes of models and protects the field below
	loading map[string]bool // the models that are being loaded
}

// Start loads every model of the repositories and returns when each is ready or
// has failed. It fails itself only when a repository cannot be read: what
// became of the models, Index tells.
func Start(ctx context.Context, opt Options) (*Engine, error) {
	e := New(opt)
	if err := e.LoadAll(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// New returns an engine without models: live, not ready. It lets a server
// answer for its health while LoadAll runs.
func New(opt Options) *Engine {
	e := &Engine{opt: opt, backends: make(map[string]backend.Backend), loading: make(map[string]bool), log: opt.Log}
	for _, b := range opt.Backends {
		e.backends[b.Name()] = b
	}
	e.models.Store(&map[string]*entry{})
	return e
}

// LoadAll loads every model of the repositories, as Start does. It is called
// once; if it fails the engine does not become ready.
func (e *Engine) LoadAll(ctx context.Context) error {
	found, ambiguous, err := repository.Scan(e.opt.Repositories)
	if err != nil {
		return err
	}
	for _, name := range ambiguous {
		e.put(&entry{name: name, ambiguous: true, err: errAmbiguous})
	}
	e.loadSome(ctx, found)
	if err := e.Failed(); err != nil && e.opt.AllOrNothing {
		return fmt.Errorf("failed to load all models; mend them, or serve the others with --exit-on-error=false:\n%w", err)
	}
	e.loaded.Store(true)
	return nil
}

// loadSome loads the models side by side.
func (e *Engine) loadSome(ctx context.Context, found []repository.Entry) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, e.opt.LoadThreads))
	for _, src := range found {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			e.begin(src.Name)
			e.put(e.load(ctx, src))
		})
	}
	wg.Wait()
}

// begin notes that a model is being loaded.
func (e *Engine) begin(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loading[name] = true
}

// put makes m known, in place of what had its name.
func (e *Engine) put(m *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.loading, m.name)
	next := make(map[string]*entry, len(*e.models.Load())+1)
	for name, old := range *e.models.Load() {
		next[name] = old
	}
	next[m.name] = m
	e.models.Store(&next)
}

// Lookup says whether there is a model of that name, ready or not, and which of
// its versions a request for version gets: NoVersion when that is not ready.
func (e *Engine) Lookup(name string, version int64) (exists bool, number int64) {
	m := (*e.models.Load())[name]
	if m == nil {
		return false, NoVersion
	}
	v, err := m.version(version)
	if err != nil {
		return true, NoVersion
	}
	return true, v.number
}

// Live reports whether the process serves.
func (e *Engine) Live() bool { return !e.stopping.Load() }

// Stopping reports whether Stop was called.
func (e *Engine) Stopping() bool { return e.stopping.Load() }

// Ready reports whether the server may be sent requests: everything was tried
// and, unless readiness is loose, every model is ready.
func (e *Engine) Ready() bool {
	if !e.loaded.Load() || e.stopping.Load() {
		return false
	}
	if e.opt.LooseReadiness {
		return true
	}
	return e.Failed() == nil && !slices.ContainsFunc(e.sorted(), (*entry).troubled)
}

// Failed returns why models did not load, joined; nil when all did.
func (e *Engine) Failed() error {
	var errs []error
	for _, m := range e.sorted() {
		if err := m.failure(); err != nil {
			errs = append(errs, fmt.Errorf("model %q: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}

// ModelReady reports whether that version, or any for infer.LatestVersion, is
// ready and able to serve.
func (e *Engine) ModelReady(name string, version int64) bool {
	v, err := e.find(name, version)
	return err == nil && v.trouble() == nil
}

// Load asks for a model to be loaded or loaded anew.
func (e *Engine) Load(context.Context, string) error { return errNoControl }

// Unload asks for a model to be taken away.
func (e *Engine) Unload(context.Context, string, bool) error { return errNoControl }

// SharedMemory returns the memory that clients lend; nil, which refuses all, when
// they may not.
func (e *Engine) SharedMemory() *shm.Registry { return e.opt.SharedMemory }

// Trim has the models give back memory that they keep for later batches.
func (e *Engine) Trim() {
	for _, m := range e.sorted() {
		for _, slot := range m.versions {
			if slot.v != nil && slot.v.leases.begin() {
				slot.v.trim()
				slot.v.leases.end()
			}
		}
	}
}

func (e *Engine) sorted() []*entry {
	models := *e.models.Load()
	list := make([]*entry, 0, len(models))
	for _, m := range models {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *entry) int { return compareNames(a.name, b.name) })
	return list
}

var (
	errStarting  = status.Rejectf(reject.NotReady, status.Unavailable, "Server not ready")
	errExiting   = status.Rejectf(reject.NotReady, status.Unavailable, "Server exiting")
	errAmbiguous = status.Errorf(status.InvalidArgument, "model appears in two or more repositories")
	errNoControl = status.Errorf(status.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
)
