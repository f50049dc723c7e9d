package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	if e.opt.Startup != nil {
		found, ambiguous, missing = atStart(e.opt.Startup, found, ambiguous)
	}
	e.add(missing...)
	for _, name := range missing {
		e.fail(name, status.Errorf(status.NotFound, "no repository has a folder of that name"))
	}
	if err := e.follow(ctx, found, ambiguous); err != nil {
		return err
	}
	if errs := e.failures(); len(errs) > 0 && e.opt.AllOrNothing {
		return fmt.Errorf("%d of %d models did not load; serve the others with --exit-on-error=false:\n%w", len(errs), len(e.sorted()), errors.Join(errs...))
	}
	e.loaded.Store(true)
	return nil
}

// atStart returns the named models, and the names without a model.
func atStart(names []string, found []repository.Entry, ambiguous []string) (_ []repository.Entry, _, missing []string) {
	known := make(map[string]bool)
	named := func(name string) bool { known[name] = true; return slices.Contains(names, name) }
	found = slices.DeleteFunc(found, func(src repository.Entry) bool { return !named(src.Name) })
	ambiguous = slices.DeleteFunc(ambiguous, func(name string) bool { return !named(name) })
	for _, name := range names {
		if !known[name] {
			missing = append(missing, name)
		}
	}
	return found, ambiguous, missing
}

// Load loads a model, or what has changed of it since it was loaded, and
// returns when it is ready. o overrides the repository. The current versions go
// on serving while it loads, and still do when Load fails. Loads of one model
// wait for each other. The end of ctx cancels the load.
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
	if err := e.takeTurns(ctx, name); err != nil {
		return err
	}
	defer e.giveTurns(name)
	return e.loadWith(ctx, (*e.models.Load())[name], o)
}

// Unload unloads a model and the models that call it. It returns as soon as
// they accept no more requests; requests that have a lease are served, and then
// the model is freed. With dependents it also unloads the models that only
// these call. An unknown model counts as unloaded.
func (e *Engine) Unload(ctx context.Context, name string, dependents bool) error {
	if err := e.beginControl(); err != nil {
		return err
	}
	defer e.work.Done()
	names := e.unloadSet(name, dependents)
	if err := e.takeTurns(ctx, names...); err != nil {
		return err
	}
	defer e.giveTurns(names...)
	models := *e.models.Load()
	for _, name := range names {
		if m := models[name]; m != nil {
			m.override.end()
			m.override = nil
		}
	}
	return e.carryOut(ctx, repository.Plan(nil, e.actual(names...)), nil)
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

// unloadSet returns the models that are unloaded when one is.
func (e *Engine) unloadSet(name string, dependents bool) []string {
	models := e.sorted()
	set := map[string]bool{name: true}
	for grew := true; grew; { // up, to those that call any of the set
		n := len(set)
		for _, m := range models {
			if slices.ContainsFunc(m.plan.Calls, func(callee string) bool { return set[callee] }) {
				set[m.name] = true
			}
		}
		grew = len(set) > n
	}
	for grew := dependents; grew; { // down, to those that no other model calls
		n := len(set)
		for _, m := range models {
			called, others := false, false
			for _, caller := range models {
				if slices.Contains(caller.plan.Calls, m.name) {
					called, others = called || set[caller.name], others || !set[caller.name]
				}
			}
			if called && !others {
				set[m.name] = true
			}
		}
		grew = len(set) > n
	}
	return slices.Sorted(maps.Keys(set))
}
