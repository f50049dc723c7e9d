package engine

import (
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
	found, ambiguous, err := repository.Scan(e.opt.Repositories)
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
		e.fail(name, status.Errorf(status.NotFound, "no repository has a folder of that name"))
	}
	if err := e.follow(ctx, found, ambiguous, implied); err != nil {
		return err
	}
	if errs := e.failures(); len(errs) > 0 && e.opt.AllOrNothing {
		return fmt.Errorf("%d of %d models did not load; serve the others with --exit-on-error=false:\n%w", len(errs), len(e.sorted()), errors.Join(errs...))
	}
	e.loaded.Store(true)
	return nil
}

// atStart returns the models to start with: those that are named in Options and
// those that they call, which are in implied. missing are the names without a
// model.
func (e *Engine) atStart(found []repository.Entry, ambiguous []string) (_ []repository.Entry, _, missing []string, implied map[string]bool) {
	known := make(map[string]repository.Entry, len(found))
	for _, src := range found {
		known[src.Name] = src
	}
	chosen := make(map[string]bool)
	implied = make(map[string]bool)
	var choose func(names []string)
	choose = func(names []string) {
		for _, name := range names {
			src, ok := known[name]
			if chosen[name] || !ok {
				continue
			}
			chosen[name] = true
			implied[name] = !slices.Contains(e.opt.Startup, name)
			if cfg, err := src.Config(e.opt.ConfigName); err == nil {
				choose(e.calls(cfg))
			}
		}
	}
	choose(e.opt.Startup)
	for _, name := range e.opt.Startup {
		if !chosen[name] && !slices.Contains(ambiguous, name) {
			missing = append(missing, name)
		}
	}
	found = slices.DeleteFunc(found, func(src repository.Entry) bool { return !chosen[src.Name] })
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
	e.add(name)
	names, err := e.takeSet(ctx, func() []string { return e.family(name, o) })
	if err != nil {
		return err
	}
	defer e.giveTurns(names...)
	return e.loadWith(ctx, (*e.models.Load())[name], o)
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
	names, err := e.takeSet(ctx, func() []string {
		unwanted, callers := e.unloadSet(name, dependents)
		return append(unwanted, callers...)
	})
	if err != nil {
		return err
	}
	defer e.giveTurns(names...)
	unwanted, _ := e.unloadSet(name, dependents)
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

// unloadSet returns the models that are unloaded when one is: it and, with
// dependents, those that were loaded because of it; and the models that call
// any of these.
func (e *Engine) unloadSet(name string, dependents bool) (unwanted, callers []string) {
	models := *e.models.Load()
	gone := map[string]bool{name: true}
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
			if src, err := repository.Find(e.opt.Repositories, name); err == nil {
				e.add(name)
				set[name] = true
				down(e.callsOf(src, Override{}))
			} else if m := (*e.models.Load())[name]; m != nil {
				set[name] = true
				down(m.calls())
			}
		}
	}
	src, err := repository.Find(e.opt.Repositories, name)
	if err == nil || o.Files != nil {
		src.Name = name
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
	return e.calls(cfg)
}

// calls returns the models that a model calls: as it is wanted, and as it is
// served.
func (m *managed) calls() []string {
	if m == nil {
		return nil
	}
	return append(slices.Clone(m.wish.Load().calls()), m.entry.Load().plan.Calls...)
}
