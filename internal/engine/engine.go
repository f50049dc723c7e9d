package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/logset"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/reject"
	"shoal/internal/repository"
	"shoal/internal/respcache"
	"shoal/internal/sched"
	"shoal/internal/shm"
	"shoal/internal/status"
	"shoal/internal/trace"
)

// Options are the settings of an engine.
type Options struct {
	Name         string // the server's name in its metadata
	Version      string
	Repositories []string
	Backends     []backend.Backend

	// Namespaces makes each repository a namespace, so that several can have
	// models of the same name.
	Namespaces bool
	// ConfigName chooses configs/<ConfigName>.pbtxt over config.pbtxt.
	ConfigName string
	// NoAutoComplete leaves configurations as they are written.
	NoAutoComplete bool
	// AllOrNothing keeps the server from becoming ready when a model fails to
	// load at the start; LoadAll then returns the reason.
	AllOrNothing bool
	// LooseReadiness makes the server ready even when a model is not.
	LooseReadiness bool
	// Limiter limits instances by the resources that they share; nil when there
	// is none.
	Limiter *sched.Limiter
	// Batching is the batching policy for every model; empty for the one that
	// each model's configuration chooses.
	Batching model.Batching
	// HoldBatches keeps the first requests of each batching model queued until
	// there are this many; for tests.
	HoldBatches int
	// Control lets Load and Unload change what is served.
	Control bool
	// Startup names the models that LoadAll loads; nil means all of the
	// repositories.
	Startup []string
	// TempDir returns the folder for files that clients send with a model; nil
	// means the system's temporary folder.
	TempDir func() (string, error)
	// LoadRetries is how often loading a version is tried again after a
	// failure.
	LoadRetries int
	// LoadThreads is how many models load at once.
	LoadThreads int
	// Arrived, unless nil, is called for each checked request, before it is
	// scheduled. It must not block, nor keep its arguments except the
	// signature.
	Arrived func(sig *model.Signature, version int64, r *infer.Request)
	// ComputeTimes keeps the distributions of the times of an execution's
	// parts; otherwise only their sums are known.
	ComputeTimes bool
	// ResponseQueueSize is how many bytes of a decoupled model's responses to
	// one request may wait for a client that reads slowly;
	// DefaultResponseQueueSize when it is zero.
	ResponseQueueSize int64

	// SharedMemory has the clients' shared memory; nil when it is not allowed.
	SharedMemory *shm.Registry

	// Cache keeps the responses of models with response_cache; nil when there is
	// none.
	Cache *respcache.Cache

	// LogSettings are the settings of the log that clients may change; nil when
	// they may not.
	LogSettings *logset.Control

	// Tracer traces requests. It stays the caller's, and must outlive the engine.
	// When it is nil, none are traced.
	Tracer *trace.Tracer

	Log *slog.Logger
}

// An Engine serves the models of its repositories.
type Engine struct {
	opt      Options
	repos    repository.Set
	backends map[string]backend.Backend
	log      *slog.Logger
	calls    func(*modelpb.ModelConfig) []string // the models that a configuration calls
	threads  chan struct{}                       // has room for each model that may load at the same time
	stop     chan struct{}                       // closed by Stop

	stopping atomic.Bool // see Drain
	stopped  atomic.Bool // see Stop
	leaving  atomic.Bool // see Leave
	loaded   atomic.Bool // every model was tried
	models   atomic.Pointer[map[string]*managed]

	waits waitGraph // of instances for others

	work sync.WaitGroup // changes on their way and versions that drain

	mu      sync.Mutex      // serialises publish, and protects the fields below
	loading map[string]bool // the models that are being loaded
	retired []*Version      // replaced or unloaded and not yet freed, the oldest first
}

// Start loads every model of the repositories and returns when each is ready or
// has failed. It fails itself only when a repository cannot be read; Index has
// the models' states.
func Start(ctx context.Context, opt Options) (*Engine, error) {
	e := New(opt)
	if err := e.LoadAll(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// New returns an engine without models: live, not ready. A server can then
// report its health while LoadAll runs.
func New(opt Options) *Engine {
	if opt.Tracer == nil {
		opt.Tracer = trace.Off()
	}
	e := &Engine{
		opt: opt, repos: repository.Set{Roots: opt.Repositories, Namespaces: opt.Namespaces}, backends: make(map[string]backend.Backend), log: opt.Log, calls: ensembleSteps,
		threads: make(chan struct{}, max(1, opt.LoadThreads)), stop: make(chan struct{}), loading: make(map[string]bool),
	}
	for _, b := range opt.Backends {
		e.backends[b.Name()] = b
	}
	e.models.Store(&map[string]*managed{})
	return e
}

// ensembleSteps returns the models that an ensemble calls.
func ensembleSteps(cfg *modelpb.ModelConfig) []string {
	var list []string
	for _, step := range cfg.GetEnsembleScheduling().GetStep() {
		list = append(list, step.GetModelName())
	}
	return list
}

// Lookup reports whether there is a model of that name, ready or not, and which
// of its versions a request for version gets: NoVersion when that is not ready.
func (e *Engine) Lookup(name string, version int64) (exists bool, number int64) {
	m, err := e.model(name)
	if err != nil {
		return false, NoVersion
	}
	v, err := m.entry.Load().version(version)
	if err != nil {
		return true, NoVersion
	}
	return true, v.number
}

// Live reports whether the server is running.
func (e *Engine) Live() bool { return !e.stopping.Load() }

// Leave makes the server not ready, although it goes on serving as before: whoever
// sends it requests is to see that it will stop.
func (e *Engine) Leave() { e.leaving.Store(true) }

// Stopping reports whether Drain was called.
func (e *Engine) Stopping() bool { return e.stopping.Load() }

// Stopped reports whether Stop was called.
func (e *Engine) Stopped() bool { return e.stopped.Load() }

// Ready reports whether the server accepts requests: all models were tried and,
// unless readiness is loose, every model is ready.
func (e *Engine) Ready() bool {
	if !e.loaded.Load() || e.stopping.Load() || e.leaving.Load() {
		return false
	}
	if e.opt.LooseReadiness {
		return true
	}
	return !slices.ContainsFunc(e.sorted(), func(m *entry) bool {
		return m.unsettled() || m.failure() != nil && !m.ambiguous && !(e.opt.Control && m.unread())
	})
}

// Failed returns why models did not load, joined; nil when all did.
func (e *Engine) Failed() error { return errors.Join(e.failures()...) }

// failures returns an error for each model that did not load.
func (e *Engine) failures() (errs []error) {
	for _, m := range e.sorted() {
		if err := m.failure(); err != nil {
			errs = append(errs, fmt.Errorf("model %q: %w", m.name, err))
		}
	}
	return errs
}

// ModelReady reports whether that version, or any for infer.LatestVersion, is
// ready and able to serve.
func (e *Engine) ModelReady(name string, version int64) bool {
	v, err := e.find(name, version)
	return err == nil && v.trouble() == nil && !e.stopping.Load()
}

// LogSettings returns the settings of the log that clients may change; nil when they
// may not.
func (e *Engine) LogSettings() *logset.Control { return e.opt.LogSettings }

// Tracer returns what decides which requests are traced.
func (e *Engine) Tracer() *trace.Tracer { return e.opt.Tracer }

// Traceable reports whether there are trace settings of a model: it is ready, or its
// name is empty, which stands for the server.
func (e *Engine) Traceable(name string) bool {
	return name == "" || e.ModelReady(name, infer.LatestVersion)
}

// SharedMemory returns the clients' shared memory; nil, which refuses
// everything, when it is not allowed.
func (e *Engine) SharedMemory() *shm.Registry { return e.opt.SharedMemory }

// Trim makes the models free memory that they keep for later batches.
func (e *Engine) Trim() {
	for _, m := range e.sorted() {
		for _, v := range m.ready() {
			if v.leases.begin() {
				v.trim()
				v.leases.end()
			}
		}
	}
}

// add adds new names.
func (e *Engine) add(names ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := maps.Clone(*e.models.Load())
	for _, name := range names {
		if next[name] == nil {
			m := &managed{name: name, turn: make(chan struct{}, 1)}
			m.entry.Store(newEntry(name, repository.Model{}, nil))
			next[name] = m
		}
	}
	e.models.Store(&next)
}

// sorted returns the entries of all models, by name.
func (e *Engine) sorted() []*entry {
	models := *e.models.Load()
	list := make([]*entry, 0, len(models))
	for _, m := range models {
		list = append(list, m.entry.Load())
	}
	slices.SortFunc(list, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	return list
}

var (
	errStarting  = status.Rejectf(reject.NotReady, status.Unavailable, "Server not ready")
	errExiting   = status.Rejectf(reject.NotReady, status.Unavailable, "Server exiting")
	errNoControl = status.Errorf(status.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
)
