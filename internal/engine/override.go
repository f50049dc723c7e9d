package engine

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/repository"
	"shoal/internal/status"
)

// An Override is what a client loads a model with instead of the repository's
// files. The zero value overrides nothing.
type Override struct {
	// Config is a whole configuration as JSON; empty means the repository's.
	Config string
	// Files are all files of the model, by their paths in its folder; nil means
	// the repository's. They need a Config.
	Files map[string][]byte
}

// An override is an Override that is in use.
type override struct {
	cfg   *modelpb.ModelConfig
	since repository.Stamp // of the configuration in the repository, which is used again once it changes
	store *store           // has the client's files; nil when the repository's are used
}

// end releases the override's files. The versions that were loaded from them
// keep them.
func (o *override) end() {
	if o != nil {
		o.store.release()
	}
}

// locate returns the model's folder and the overrides to load it with. The
// caller has the model's turn, and must end the override unless it was in use
// before.
func (e *Engine) locate(m *managed, o Override) (repository.Entry, *override, error) {
	if o.Files != nil {
		return e.locateFiles(m.name, o)
	}
	src, err := e.repos.Find(m.name)
	if err != nil {
		return src, nil, err
	}
	since := src.ConfigStamp(e.opt.ConfigName)
	if o.Config != "" {
		cfg, err := parseOverride(src, o.Config)
		return src, &override{cfg: cfg, since: since}, err
	}
	if old := m.override; old != nil && old.store == nil && old.since == since {
		return src, old, nil
	}
	return src, nil, nil
}

// locateFiles writes a client's files into a separate folder.
func (e *Engine) locateFiles(name string, o Override) (repository.Entry, *override, error) {
	src := repository.Entry{Name: name}
	if o.Config == "" {
		return src, nil, status.Errorf(status.InvalidArgument, "Load parameter 'config' must be specified for model file override")
	}
	cfg, err := parseOverride(src, o.Config)
	if err != nil {
		return src, nil, err
	}
	temp := os.TempDir()
	if e.opt.TempDir != nil {
		if temp, err = e.opt.TempDir(); err != nil {
			return src, nil, err
		}
	}
	dir, err := repository.WriteFiles(temp, o.Files)
	if err != nil {
		return src, nil, err
	}
	src.Dir = dir
	return src, &override{cfg: cfg, store: newStore(dir)}, nil
}

func parseOverride(src repository.Entry, text string) (*modelpb.ModelConfig, error) {
	cfg, err := model.ParseJSON([]byte(text))
	if err == nil {
		err = src.CheckConfig(cfg)
	}
	if err == nil {
		err = checkFilenames(src, cfg)
	}
	if err != nil {
		return nil, status.Prefix("Invalid config override: ", err)
	}
	return cfg, nil
}

// checkFilenames refuses a client's configuration that takes files from elsewhere
// on this machine, be it through links. The repository's own may do so.
func checkFilenames(src repository.Entry, cfg *modelpb.ModelConfig) error {
	versions, err := src.Versions(func(string) {})
	if err != nil {
		versions = nil // a client's files, or a folder that cannot be read, which loading reports
	}
	for _, name := range append(slices.Sorted(maps.Values(cfg.GetCcModelFilenames())), cfg.GetDefaultModelFilename()) {
		if name == "" {
			continue
		}
		if !filepath.IsLocal(name) || slices.ContainsFunc(versions, func(n int64) bool { return repository.Leaves(src.VersionDir(n), name) }) {
			return status.Errorf(status.InvalidArgument, "the model's file '%s' is not inside its version folder", name)
		}
	}
	var files []string
	for _, out := range cfg.GetOutput() {
		files = append(files, out.GetLabelFilename())
	}
	for _, sample := range cfg.GetModelWarmup() {
		for _, in := range sample.GetInputs() {
			if in.GetInputDataFile() != "" {
				files = append(files, filepath.Join("warmup", in.GetInputDataFile()))
			}
		}
	}
	for _, name := range files {
		if name != "" && src.Dir != "" && repository.Leaves(src.Dir, name) {
			return status.Errorf(status.InvalidArgument, "the file '%s' is not inside the model's folder", name)
		}
	}
	return nil
}

// loadWith loads a model with o. The caller has its turn.
func (e *Engine) loadWith(ctx context.Context, m *managed, o Override) error {
	src, over, err := e.locate(m, o)
	if err != nil {
		e.log.Error("model not loaded", "model", m.name, "err", err)
		return loadFault(m.name, unreadable{err})
	}
	keep := false
	defer func() {
		if drop := m.override; keep && drop != over {
			m.override = over
			drop.end()
		} else if !keep && over != m.override {
			over.end()
		}
	}()
	var cfg *modelpb.ModelConfig
	if over != nil {
		cfg = over.cfg
	}
	w, err := e.read(src, cfg)
	if err != nil {
		e.fail(m.name, err)
		return loadFault(m.name, err)
	}
	if over != nil {
		w.store = over.store
	}
	m.wish.Store(&wish{explicit: true, want: w})
	wants := map[string]*wanted{m.name: w}
	e.wantCallees(w, wants)
	plan := e.plan(wants, e.callers(wants), nil)
	if !slices.ContainsFunc(plan, func(a repository.Action) bool { return a.Model == m.name }) {
		e.settle(w)
	}
	err = e.carryOut(ctx, plan, wants)[m.name]
	keep = err == nil
	return err
}

// wantCallees adds the models that w calls to wants, as they are on the disk
// now. Those that cannot be read fail.
func (e *Engine) wantCallees(w *wanted, wants map[string]*wanted) {
	for _, name := range w.model.Calls {
		m := (*e.models.Load())[name]
		if wants[name] != nil || m == nil {
			continue
		}
		if m.override != nil && m.override.store != nil && m.entry.Load().latest != nil {
			continue // a client has sent it; the disk has another, or none
		}
		callee, err := e.readAgain(m)
		if err != nil {
			e.fail(name, err)
			continue
		}
		old := m.wish.Load()
		m.wish.Store(&wish{explicit: old != nil && old.explicit, want: callee})
		wants[name] = callee
		e.wantCallees(callee, wants)
	}
}

// readAgain reads a model as a client would load it without overriding anything.
func (e *Engine) readAgain(m *managed) (*wanted, error) {
	src, over, err := e.locate(m, Override{})
	if err != nil {
		return nil, unreadable{err}
	}
	var cfg *modelpb.ModelConfig
	if over != nil {
		cfg = over.cfg
	}
	return e.read(src, cfg)
}

// callers returns the other models that call these, directly or not, as they
// were wanted last.
func (e *Engine) callers(wants map[string]*wanted) map[string]*wanted {
	found := make(map[string]*wanted)
	for grew := true; grew; {
		n := len(found)
		for name, m := range *e.models.Load() {
			w := m.wish.Load()
			if wants[name] == nil && slices.ContainsFunc(w.calls(), func(callee string) bool { return wants[callee] != nil || found[callee] != nil }) {
				found[name] = w.want
			}
		}
		grew = len(found) > n
	}
	return found
}

// exists returns an error if there is nothing to load by that name, so that
// such names are not kept.
func (e *Engine) exists(name string, o Override) error {
	if o.Files != nil {
		return nil
	}
	_, err := e.repos.Find(name)
	if status.CodeOf(err) == status.NotFound {
		return status.Wrap(status.Internal, err, fmt.Sprintf("failed to load '%s', failed to poll from model repository", name))
	}
	return nil // loading reports what else is wrong
}
