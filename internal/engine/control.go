package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"shoal/internal/model/modelpb"
	"shoal/internal/repository"
	"shoal/internal/status"
)

// LoadAll loads the models in Options, as Start does. Call it once; if it fails
// the engine does not become ready.
func (e *Engine) LoadAll(ctx context.Context) error {
	if err := e.beginChange(); err != nil {
		return err
	}
	defer e.work.Done()
	ctx, cancel := e.untilStop(ctx)
	defer cancel()
	found, ambiguous, err := e.repos.Scan()
	if err != nil {
		return err
	}
	var missing []string
	var implied map[string]bool
	if e.opt.Startup != nil {
		found, ambiguous, missing, implied = e.atStart(found, ambiguous)
	}
	e.add(missing...)
	for _, name := range missing {
		e.fail(name, status.Errorf(status.NotFound, "no repository has a folder of that name%s", e.repos.Others(name)))
	}
	if _, err := e.follow(ctx, found, ambiguous, implied); err != nil {
		return err
	}
	if errs := e.failures(); len(errs) > 0 && e.opt.AllOrNothing {
		return &LoadError{Failed: errs, Models: len(e.sorted())}
	}
	e.loaded.Store(true)
	return nil
}

// A LoadError is the failure of a start for which every model is needed. The log
// has each of the causes already.
type LoadError struct {
	Failed []error // by model
	Models int     // all that were tried
}

// Brief returns the text without the causes.
func (e *LoadError) Brief() string {
	if len(e.Failed) == e.Models {
		return fmt.Sprintf("%d of %d models did not load", len(e.Failed), e.Models)
	}
	return fmt.Sprintf("%d of %d models did not load; serve the others with --exit-on-error=false", len(e.Failed), e.Models)
}

// Error returns the text with all causes.
func (e *LoadError) Error() string { return e.Brief() + ":\n" + errors.Join(e.Failed...).Error() }

// Unwrap returns the causes.
func (e *LoadError) Unwrap() []error { return e.Failed }

// atStart returns the models to start with: those that are named in Options and
// those that they call, which are in implied. missing are the names without a
// model.
func (e *Engine) atStart(found []repository.Entry, ambiguous []string) (_ []repository.Entry, _, missing []string, implied map[string]bool) {
	known := make(map[string]repository.Entry, len(found))
	for _, src := range found {
		known[src.ID()] = src
	}
	chosen := make(map[string]bool)
	implied = make(map[string]bool)
	var choose func(ids []string)
	choose = func(ids []string) {
		for _, id := range ids {
			src, ok := known[id]
			if chosen[id] || !ok {
				continue
			}
			chosen[id] = true
			implied[id] = !slices.Contains(e.opt.Startup, src.Name)
			if cfg, err := src.Config(e.opt.ConfigName); err == nil {
				choose(e.callees(src, cfg))
			}
		}
	}
	for _, name := range e.opt.Startup {
		ids := e.repos.Named(name)
		choose(ids)
		if !slices.Contains(ambiguous, name) && !slices.ContainsFunc(ids, func(id string) bool { return chosen[id] }) {
			missing = append(missing, name)
		}
	}
	found = slices.DeleteFunc(found, func(src repository.Entry) bool { return !chosen[src.ID()] })
	ambiguous = slices.DeleteFunc(ambiguous, func(name string) bool { return !slices.Contains(e.opt.Startup, name) })
	return found, ambiguous, missing, implied
}

// Load loads a model, or what has changed of it since it was loaded, after the
// models that it calls, and returns when it is ready. o overrides the
// repository. The current versions go on serving while it loads, and still do
// when Load fails. Models that call it are loaded again. Loads of one model wait
// for each other. The end of ctx cancels the load.
func (e *Engine) Load(ctx context.Context, name string, o Override) error {
	if err := e.beginControl(); err != nil {
		return err
	}
	defer e.work.Done()
	ctx, cancel := e.untilStop(ctx)
	defer cancel()
	if err := repository.CheckName(name); err != nil {
		return err
	}
	if err := e.exists(name, o); err != nil {
		return err
	}
	if !e.repos.Namespaces || o.Files != nil {
		return e.load(ctx, name, o)
	}
	var first error
	texts := ""
	for _, id := range e.repos.Named(name) {
		if src, err := e.repos.Find(id); err != nil || src.ID() != id {
			continue
		}
		if err := e.load(ctx, id, o); err != nil {
			first = cmp.Or(first, err)
			texts += status.Public(err)
		}
	}
	if first == nil {
		return nil
	}
	return status.Errorf(status.CodeOf(first), "%s", texts)
}

// load is Load for one ID.
func (e *Engine) load(ctx context.Context, id string, o Override) error {
	e.add(id)
	ids, err := e.takeSet(ctx, func() []string { return e.family(id, o) })
	if err != nil {
		return err
	}
	defer e.giveTurns(ids...)
	return e.loadWith(ctx, (*e.models.Load())[id], o)
}

// Unload unloads a model and the models that call it; these come back when it
// is loaded again. It returns as soon as they accept no more requests; requests
// that have a lease are served, and then the model is freed. With dependents it
// also unloads the models that were loaded only because it calls them. An
// unknown model counts as unloaded.
func (e *Engine) Unload(ctx context.Context, name string, dependents bool) error {
	if err := e.beginControl(); err != nil {
		return err
	}
	defer e.work.Done()
	if m := (*e.models.Load())[name]; m != nil && m.installed.Load() {
		return status.Errorf(status.InvalidArgument, "model '%s' is not of a repository: unregister it with the management API that it was registered with", name)
	}
	ids := e.repos.Named(name)
	names, err := e.takeSet(ctx, func() []string {
		unwanted, callers := e.unloadSet(ids, dependents)
		return append(unwanted, callers...)
	})
	if err != nil {
		return err
	}
	defer e.giveTurns(names...)
	unwanted, _ := e.unloadSet(ids, dependents)
	models := *e.models.Load()
	for _, name := range unwanted {
		if m := models[name]; m != nil {
			m.wish.Store(nil)
			m.override.end()
			m.override = nil
		}
	}
	e.carryOut(ctx, repository.Plan(nil, e.actual(names...)), nil)
	return nil
}

// takeSet takes the turns of a set of models, and returns their names, sorted.
// The set may grow until they are taken.
func (e *Engine) takeSet(ctx context.Context, set func() []string) ([]string, error) {
	for {
		names := slices.Compact(slices.Sorted(slices.Values(set())))
		if err := e.takeTurns(ctx, names...); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(set(), func(name string) bool { return !slices.Contains(names, name) }) {
			return names, nil
		}
		e.giveTurns(names...)
	}
}

// beginControl is beginChange for a client, which may be forbidden.
func (e *Engine) beginControl() error {
	switch {
	case !e.opt.Control:
		return errNoControl
	case e.stopping.Load():
		return errExiting
	case !e.loaded.Load():
		return errStarting
	}
	return e.beginChange()
}

// unloadSet returns the models that are unloaded when some are: they and, with
// dependents, those that were loaded because of them; and the models that call
// any of these.
func (e *Engine) unloadSet(ids []string, dependents bool) (unwanted, callers []string) {
	models := *e.models.Load()
	gone := make(map[string]bool)
	for _, id := range ids {
		gone[id] = true
	}
	called := func(name string) bool { // by a model that stays
		for caller, m := range models {
			if !gone[caller] && slices.Contains(m.wish.Load().calls(), name) {
				return true
			}
		}
		return false
	}
	for grew := dependents; grew; {
		grew = false
		for caller := range maps.Clone(gone) {
			for _, callee := range models[caller].calls() {
				m := models[callee]
				if gone[callee] || m == nil || called(callee) {
					continue
				}
				if w := m.wish.Load(); w != nil && !w.explicit {
					gone[callee], grew = true, true
				}
			}
		}
	}
	up := maps.Clone(gone)
	for grew := true; grew; {
		n := len(up)
		for caller, m := range models {
			if slices.ContainsFunc(m.calls(), func(callee string) bool { return up[callee] }) {
				up[caller] = true
			}
		}
		grew = len(up) > n
	}
	maps.DeleteFunc(up, func(name string, _ bool) bool { return gone[name] })
	return slices.Sorted(maps.Keys(gone)), slices.Sorted(maps.Keys(up))
}

// family returns a model and those that have to do with it by calls, in either
// direction, now or when it is loaded with o. It adds those that it calls to the
// known models.
func (e *Engine) family(name string, o Override) []string {
	set := map[string]bool{name: true}
	var down func(names []string)
	down = func(names []string) {
		for _, name := range names {
			if set[name] {
				continue
			}
			if src, err := e.repos.Find(name); err == nil {
				e.add(name)
				set[name] = true
				down(e.callsOf(src, Override{}))
			} else if m := (*e.models.Load())[name]; m != nil {
				set[name] = true
				down(m.calls())
			}
		}
	}
	src, err := e.repos.Find(name)
	if o.Files != nil {
		src = repository.Entry{Name: name}
	}
	if err == nil || o.Files != nil {
		down(e.callsOf(src, o))
	}
	for grew := true; grew; {
		n := len(set)
		for name, m := range *e.models.Load() {
			if set[name] {
				down(m.calls())
			} else if slices.ContainsFunc(m.calls(), func(callee string) bool { return set[callee] }) {
				set[name] = true
			}
		}
		grew = len(set) > n
	}
	return slices.Collect(maps.Keys(set))
}

// callsOf returns the models that a model would call if it was loaded with o.
func (e *Engine) callsOf(src repository.Entry, o Override) []string {
	var cfg *modelpb.ModelConfig
	var err error
	if o.Config != "" {
		cfg, err = parseOverride(src, o.Config)
	} else {
		cfg, err = src.Config(e.opt.ConfigName)
	}
	if err != nil {
		return nil // loading reports it
	}
	return e.callees(src, cfg)
}

// callees returns the IDs of the models that a model calls under cfg: those of its
// own namespace, or else the only ones of their names. A name without such a model
// stays a name.
func (e *Engine) callees(src repository.Entry, cfg *modelpb.ModelConfig) []string {
	ids := e.calls(cfg)
	if !e.repos.Namespaces {
		return ids
	}
	for i, name := range ids {
		callee, err := e.repos.Find(repository.Entry{Name: name, Namespace: src.Namespace}.ID())
		if status.CodeOf(err) == status.NotFound {
			callee, err = e.repos.Find(name)
		}
		if err == nil {
			ids[i] = callee.ID()
		}
	}
	return ids
}

// calls returns the models that a model calls: as it is wanted, and as it is
// served.
func (m *managed) calls() []string {
	if m == nil {
		return nil
	}
	return append(slices.Clone(m.wish.Load().calls()), m.entry.Load().plan.Calls...)
}
