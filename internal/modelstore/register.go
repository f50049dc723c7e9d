package modelstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"shoal/internal/archive"
)

// A Registration is what a client asks for. Numbers are nil when it does not say.
type Registration struct {
	URL     string
	HasURL  bool
	Name    string
	Handler string
	Runtime string

	BatchSize, BatchDelay *int // requests; ms
	ResponseTimeout       *time.Duration
	StartupTimeout        *time.Duration
	InitialWorkers        *int
	Synchronous           bool

	// Startup marks the models that the server itself loads at its start; without a
	// name in the manifest they get that of their file.
	Startup bool
	// Limits for snapshots: 0 means the same as InitialWorkers.
	MaxWorkers int
}

// A Done is the answer to a change: a status over HTTP, and a text.
type Done struct {
	Status int
	Text   string
}

const textProcessing = "Processing worker updates..."

// Register registers an archive and starts its workers.
func (s *Store) Register(ctx context.Context, r Registration) (Done, error) {
	v, err := s.prepare(ctx, r)
	if err != nil {
		return Done{}, err
	}
	if err := s.add(v); err != nil {
		s.discard(v)
		return Done{}, err
	}
	workers := s.opt.Workers
	if r.InitialWorkers != nil {
		workers = *r.InitialWorkers
	}
	most := max(workers, r.MaxWorkers)
	if low, high := v.configured("minWorkers", 0), v.configured("maxWorkers", 0); low > 0 && low <= high {
		workers, most = low, high
	}
	s.opt.Log.Info("model registered", "model", v.name, "model_version", v.version, "url", v.url)
	if workers <= 0 {
		s.changed()
		if s.opt.Dialect == MMS {
			return Done{200, fmt.Sprintf("Model %q registered", rawString(v.name))}, nil
		}
		return Done{200, fmt.Sprintf("Model %q Version: %s registered with 0 initial workers. Use scale workers API to add workers for the model.", rawString(v.name), v.version)}, nil
	}
	if !r.Synchronous {
		s.scaleLater(v, workers, most)
		s.changed()
		return Done{202, textProcessing}, nil
	}
	if err := s.resize(ctx, v, workers, most); err != nil {
		if gone, _ := s.remove(v.name, v.version); gone != nil {
			s.end(gone)
		}
		return Done{}, s.errStart(v.name, v.version, err)
	}
	s.changed()
	if s.opt.Dialect == MMS {
		return Done{200, "Workers scaled"}, nil
	}
	return Done{200, fmt.Sprintf("Model %q Version: %s registered with %d initial workers", rawString(v.name), v.version, workers)}, nil
}

// A rawString is printed between quotes by %q without any change.
type rawString string

// Format implements fmt.Formatter.
func (r rawString) Format(f fmt.State, _ rune) { fmt.Fprintf(f, `"%s"`, string(r)) }

// prepare finds and checks an archive.
func (s *Store) prepare(ctx context.Context, r Registration) (*Version, error) {
	if !r.HasURL {
		return nil, errorf(400, kindBadRequest, "Parameter url is required.")
	}
	if err := s.checkRuntime(r.Runtime); err != nil {
		return nil, err
	}
	v := &Version{url: r.URL, startup: r.Startup, batchSize: 1, batchDelay: 100, queueSize: s.opt.QueueSize}
	var err error
	if v.dir, v.own, err = s.resolve(ctx, r.URL); err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if !keep {
			s.discard(v)
		}
	}()
	if v.manifest, err = archive.ReadManifest(v.dir); err != nil {
		if errors.Is(err, archive.ErrNoService) {
			return nil, errorf(400, kindInvalid, "%v", err)
		}
		return nil, errorf(400, kindInvalid, "Failed to parse signature.json.").because(err)
	}
	m := v.manifest.Model
	if m == nil {
		return nil, errorf(400, kindInvalid, "Missing Model entry in manifest file.")
	}
	v.name = cmp.Or(r.Name, m.Name)
	if v.name == "" && r.Startup {
		v.name = nameOfFile(r.URL)
	}
	v.handler = cmp.Or(r.Handler, m.Handler, s.opt.DefaultHandler)
	v.runtime = cmp.Or(r.Runtime, v.manifest.Runtime)
	v.version = m.Version.String()
	if s.opt.Dialect == TorchServe {
		v.version = cmp.Or(v.version, "1.0")
	}
	if err := s.validate(v); err != nil {
		return nil, err
	}
	if v.runtime == "python2" {
		if _, err := exec.LookPath("python2"); err != nil {
			return nil, errorf(500, kindInternal, "Failed to save model: %s", r.URL).because(err)
		}
	}
	if err := v.readConfig(s.opt.Log); err != nil {
		return nil, err
	}
	v.apply(r, s.opt)
	if err := s.install(ctx, v); err != nil {
		return nil, err
	}
	if s.opt.Dialect == TorchServe {
		v.streams = usesStreams(v.dir)
	}
	if v.folder, err = os.MkdirTemp(s.temp, "install-"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(v.folder, "1"), 0o755); err != nil {
		return nil, err
	}
	keep = true
	return v, nil
}

// install installs the Python packages that an archive asks for, if that is allowed.
func (s *Store) install(ctx context.Context, v *Version) error {
	name := v.manifest.Model.RequirementsFile
	if name == "" || s.opt.Install == nil {
		return nil
	}
	err := errors.New("packages are only installed for archives, not for folders")
	if !filepath.IsLocal(name) {
		err = fmt.Errorf("requirementsFile %q is not in the archive", name)
	} else if v.own {
		err = s.opt.Install(ctx, v.dir, name)
	}
	if err != nil {
		return errorf(400, "ModelException", "Custom pip package installation failed for model %s", v.name).because(err)
	}
	return nil
}

// apply sets the numbers: the client's, else those of the archive, else the
// server's for this version, else the server's.
func (v *Version) apply(r Registration, o Options) {
	v.defaults = o.Models[v.name][v.version]
	v.batchSize, v.batchDelay = v.configured("batchSize", 1), v.configured("maxBatchDelay", 100)
	v.queueSize = v.configured("jobQueueSize", o.QueueSize)
	v.timeouts = timeouts{
		time.Duration(v.configured("responseTimeout", int(o.ResponseTimeout/time.Second))) * time.Second,
		time.Duration(v.configured("startupTimeout", int(o.StartupTimeout/time.Second))) * time.Second,
	}
	if r.BatchSize != nil {
		v.batchSize = *r.BatchSize
	}
	if r.BatchDelay != nil {
		v.batchDelay = *r.BatchDelay
	}
	if r.ResponseTimeout != nil {
		v.timeouts.response = *r.ResponseTimeout
	}
	if r.StartupTimeout != nil {
		v.timeouts.startup = *r.StartupTimeout
	}
}

// checkRuntime checks the runtime that a client names; empty means the manifest's.
func (s *Store) checkRuntime(name string) error {
	if name == "" || s.knowsRuntime(name) {
		return nil
	}
	return errorf(400, kindBadRequest, "Invalid RuntimeType value: %s", name)
}

func (s *Store) knowsRuntime(name string) bool {
	switch name {
	case "python", "python3":
		return true
	case "python2":
		return s.opt.Dialect == MMS
	}
	return false
}

func (s *Store) validate(v *Version) error {
	engine := v.manifest.Engine
	switch {
	case v.name == "":
		return errorf(400, kindInvalid, "Model name is not defined.")
	case v.handler == "" && s.opt.Dialect == MMS: // TorchServe finds out when the workers start
		return errorf(400, kindInvalid, "Model handler is not defined.")
	case !s.knowsRuntime(v.runtime):
		return errorf(400, kindInvalid, "Runtime is not defined or invalid.")
	case s.opt.Dialect == MMS && engine != nil && engine.Name == "":
		return errorf(400, kindInvalid, "engineName is required in <engine>.")
	}
	return nil
}

// nameOfFile returns the name of a model that is loaded at the start and has none.
func nameOfFile(url string) string {
	name := url[strings.LastIndex(url, "/")+1:]
	if strings.Contains(name, ".mar") || strings.Contains(name, ".model") {
		name = name[:strings.LastIndex(name, ".")]
	}
	return notWord.ReplaceAllString(name, "_")
}

var notWord = regexp.MustCompile(`\W`)

// usesStreams reports whether a file of the model sends answers in parts.
func usesStreams(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".py") {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("send_intermediate_predict_response")) {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// discard removes what prepare has made.
func (s *Store) discard(v *Version) {
	if v.own {
		_ = os.RemoveAll(v.dir) // below our own temporary folder
	}
	if v.folder != "" {
		_ = os.RemoveAll(v.folder)
	}
}

// configured returns a number of the model's own configuration, or another.
func (v *Version) configured(key string, other int) int {
	for _, from := range []map[string]any{v.config, v.defaults} {
		switch n := from[key].(type) {
		case int64:
			return int(n)
		case float64: // of JSON
			return int(n)
		case string:
			if i, err := strconv.Atoi(n); err == nil {
				return i
			}
		}
	}
	return other
}
