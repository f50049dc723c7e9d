// Package modelstore is the management API of Multi Model Server and TorchServe
// without a socket: it registers model archives, starts and stops their workers
// and describes them, in the words of the server whose dialect it has. A
// registered archive is an ordinary model of the engine; without workers it is
// known here only. Open returns a store that the caller must Close; every method
// may be called from many goroutines.
package modelstore

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/archive"
	"shoal/internal/engine"
	"shoal/internal/model/modelpb"
)

// A Dialect is one of the two servers.
type Dialect int

// The dialects.
const (
	MMS Dialect = iota
	TorchServe
)

// String returns the dialect's name, as handlers' workers know it.
func (d Dialect) String() string { return [...]string{"mms", "torchserve"}[d] }

// ServerVersion is the version of the original that handlers are told.
func (d Dialect) ServerVersion() string { return [...]string{"1.1.11", "0.12.0"}[d] }

// An Engine runs models.
type Engine interface {
	Install(ctx context.Context, name, dir string, cfg *modelpb.ModelConfig) error
	Uninstall(ctx context.Context, name string) error
	Statistics(name string, version int64) ([]engine.Statistics, error)
	ModelReady(name string, version int64) bool
	Acquire(name string, version int64) (engine.Lease, error)
}

// Options are the settings of a store; the comments name the keys of
// config.properties.
type Options struct {
	Dialect Dialect
	Engine  Engine
	// Folder is the folder with archives (model_store); empty when there is none.
	Folder string
	// Temp is where archives are extracted; empty means the system's.
	Temp           string
	DefaultHandler string // default_service_handler
	// Workers is how many workers a model gets that is registered without a number
	// (default_workers_per_model).
	Workers           int
	QueueSize         int           // job_queue_size
	ResponseTimeout   time.Duration // default_response_timeout
	StartupTimeout    time.Duration // default_startup_timeout
	UnregisterTimeout time.Duration // unregister_model_timeout
	MaxResponseSize   int           // max_response_size
	RawInput          bool          // decode_input_request=false
	Envelope          string        // service_envelope
	AnyImageSize      bool          // limit_max_image_pixels=false
	GPUs              int           // number_of_gpu, as many as there are
	// Allowed are the URLs that archives may be fetched from (allowed_urls).
	Allowed []*regexp.Regexp
	// Models are settings of single versions by name and version (models). An
	// archive's own and a client's come before them.
	Models map[string]map[string]map[string]any
	// Install installs the packages in a file of requirements into a model's folder
	// (install_py_dep_per_model); nil installs none.
	Install func(ctx context.Context, dir, requirements string) error
	// Metrics makes workers report the metrics of handlers.
	Metrics bool
	// Loaded, unless nil, is called with a worker's name and how long it took to load
	// its model.
	Loaded func(worker string, took time.Duration)
	// Changed, unless nil, is called after each change of what is registered.
	Changed func()
	Log     *slog.Logger
}

// A Store has the registered models.
type Store struct {
	opt    Options
	temp   string
	base   context.Context // of what goes on after the client has its answer
	cancel context.CancelFunc
	work   sync.WaitGroup
	ports  atomic.Int64 // the next worker's number

	models atomic.Pointer[map[string]*registered]

	mu sync.Mutex // serialises changes of models
}

// A registered is a model with its versions. It does not change: a change
// publishes another.
type registered struct {
	name     string
	versions map[string]*Version
	def      string // the default version
}

// Open returns a store without models.
func Open(opt Options) (*Store, error) {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	opt.QueueSize = cmp.Or(opt.QueueSize, 100)
	opt.UnregisterTimeout = cmp.Or(opt.UnregisterTimeout, 120*time.Second)
	s := &Store{opt: opt}
	s.ports.Store(9000)
	var err error
	if s.temp, err = os.MkdirTemp(opt.Temp, "shoal-modelstore-"); err != nil {
		return nil, err
	}
	if s.temp, err = filepath.Abs(s.temp); err != nil {
		return nil, err
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.models.Store(&map[string]*registered{})
	return s, nil
}

// Close cancels what is in progress, waits for it and removes the extracted
// archives. The engine frees the models.
func (s *Store) Close() {
	s.cancel()
	s.work.Wait()
	_ = os.RemoveAll(s.temp) // our own temporary folder
}

// Dialect returns the store's dialect.
func (s *Store) Dialect() Dialect { return s.opt.Dialect }

// Find returns a version of a model, the default one for an empty version.
func (s *Store) Find(name, version string) (*Version, error) {
	m := (*s.models.Load())[name]
	if m == nil {
		return nil, errNotFound(name)
	}
	if version == "" {
		version = m.def
	}
	v := m.versions[version]
	if v == nil {
		return nil, errNoVersion(name, version)
	}
	return v, nil
}

// Default returns the only model that was loaded at the start, nil when there is
// not exactly one.
func (s *Store) Default() *Version {
	var found *Version
	for _, m := range *s.models.Load() {
		v := m.versions[m.def]
		if !v.startup {
			continue
		}
		if found != nil {
			return nil
		}
		found = v
	}
	return found
}

// sorted returns the models by name.
func (s *Store) sorted() []*registered {
	return slices.SortedFunc(maps.Values(*s.models.Load()), func(a, b *registered) int { return strings.Compare(a.name, b.name) })
}

// add publishes a version. It fails when there is one already.
func (s *Store) add(v *Version) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	models := *s.models.Load()
	m := models[v.name]
	next := &registered{name: v.name, versions: map[string]*Version{}, def: v.version}
	if m != nil {
		if m.versions[v.version] != nil || s.opt.Dialect == MMS {
			if s.opt.Dialect == MMS {
				return errorf(409, kindConflict, "Model %s is already registered.", v.name)
			}
			return errorf(409, kindConflict, "Model version %s is already registered for model %s", v.version, v.name)
		}
		next.def = m.def
		maps.Copy(next.versions, m.versions)
	}
	v.served = v.name
	for _, other := range next.versions {
		if other.served == v.served {
			v.served = v.name + ":" + v.version
		}
	}
	next.versions[v.version] = v
	s.publish(v.name, next)
	return nil
}

// publish replaces a model; nil removes it. The caller has mu.
func (s *Store) publish(name string, m *registered) {
	next := maps.Clone(*s.models.Load())
	if m == nil {
		delete(next, name)
	} else {
		next[name] = m
	}
	s.models.Store(&next)
}

// remove takes a version away. It fails when there is none, and for the default
// version while there are others.
func (s *Store) remove(name, version string) (*Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := (*s.models.Load())[name]
	if m == nil {
		return nil, errNotFound(name)
	}
	version = cmp.Or(version, m.def)
	v := m.versions[version]
	switch {
	case v == nil:
		return nil, errNoVersion(name, version)
	case len(m.versions) == 1:
		s.publish(name, nil)
		return v, nil
	case version == m.def:
		return nil, errorf(403, kindDefault, "Cannot remove default version for model %s", name)
	}
	next := &registered{name: name, def: m.def, versions: maps.Clone(m.versions)}
	delete(next.versions, version)
	s.publish(name, next)
	return v, nil
}

// putBack publishes a version again that could not be removed.
func (s *Store) putBack(v *Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &registered{name: v.name, versions: map[string]*Version{}, def: v.version}
	if m := (*s.models.Load())[v.name]; m != nil {
		next.def = m.def
		maps.Copy(next.versions, m.versions)
	}
	next.versions[v.version] = v
	s.publish(v.name, next)
}

// SetDefault makes a version the default and returns the text for the client.
func (s *Store) SetDefault(name, version string) (string, error) {
	s.mu.Lock()
	m := (*s.models.Load())[name]
	switch {
	case m == nil:
		s.mu.Unlock()
		return "", errNotFound(name)
	case m.versions[version] == nil:
		s.mu.Unlock()
		return "", errorf(404, kindNoVersion, "Model version %s does not exist for model %s", version, name)
	}
	s.publish(name, &registered{name: name, versions: m.versions, def: version})
	s.mu.Unlock()
	s.changed()
	return `Default version successfully updated for model "` + name + `" to "` + version + `"`, nil
}

func (s *Store) changed() {
	if s.opt.Changed != nil {
		s.opt.Changed()
	}
}

// A Version is a registered archive.
type Version struct {
	name, version string
	served        string // its name in the engine
	url           string
	runtime       string
	handler       string
	manifest      archive.Manifest
	config        map[string]any // of model-config.yaml
	defaults      map[string]any // of the server's configuration, for this version
	dir           string         // the model's folder
	own           bool           // dir was made for it
	folder        string         // what the engine installs
	batchSize     int
	batchDelay    int // ms
	timeouts      timeouts
	queueSize     int
	startup       bool
	streams       bool

	turn sync.Mutex // held while the workers change

	mu       sync.Mutex // protects the fields below
	min, max int
	workers  []worker
	loaded   bool // the engine runs the workers
	failed   bool // the last start failed
	removed  bool
	change   chan struct{} // closed when the workers have changed; nil when they do not
	waiting  int           // requests that wait for that

	ready atomic.Bool // it has workers: requests are accepted
}

type timeouts struct{ response, startup time.Duration }

// A worker is one worker as clients see it.
type worker struct {
	id    string
	start time.Time
	told  bool // its load was reported
}

// Name returns the model's name.
func (v *Version) Name() string { return v.name }

// Number returns the version.
func (v *Version) Number() string { return v.version }

// Served returns the name that the model has in the engine.
func (v *Version) Served() string { return v.served }

// Streams reports whether the handler may send its answers in parts.
func (v *Version) Streams() bool { return v.streams }

// HasWorkers reports whether requests can be given to the model.
func (v *Version) HasWorkers() bool { return v.ready.Load() }
