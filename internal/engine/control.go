package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"shoal/internal/repository"
	"shoal/internal/status"
)

// LoadAll loads the models that Options name, as Start does. It is called once; if
// it fails the engine does not become ready.
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
	if err := e.Failed(); err != nil && e.opt.AllOrNothing {
		return fmt.Errorf("failed to load all models; mend them, or serve the others with --exit-on-error=false:\n%w", err)
	}
	e.loaded.Store(true)
	return nil
}

// atStart returns those of the models that are named, and the names that there are
// no models of.
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

// Load loads a model, or what has changed of it since it was loaded, and returns
// when it is ready. What o has takes the place of what the repository has. While
// it loads, what is there goes on serving, and still does when Load fails. Loads
// of one model wait for each other. The end of ctx calls the load off.
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

// Unload takes a model away, and with it the models that call it. It returns as
// soon as they take no more requests; those that have a lease are served, and
// then the model is freed. With dependents the models go, too, that only these
// call. A model that is not known counts as unloaded.
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

// beginControl is beginChange for a client, who may not always make one.
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
	for grew := dependents; grew; { // down, to those that nobody else calls
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
