package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"shoal/internal/repository"
	"shoal/internal/status"
)

// LoadAll loads every model of the repositories, as Start does. It is called
// once; if it fails the engine does not become ready.
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
	names := slices.Clone(ambiguous)
	for _, src := range found {
		names = append(names, src.Name)
	}
	slices.Sort(names)
	e.add(names...)
	for _, name := range ambiguous {
		e.publish(name, func(*entry) *entry { return &entry{name: name, ambiguous: true, err: errAmbiguous} })
	}
	if err := e.takeTurns(ctx, names...); err != nil {
		return err
	}
	defer e.giveTurns(names...)
	wants := e.readAll(found)
	var models []repository.Model
	for _, w := range wants {
		models = append(models, w.model)
	}
	_ = e.carryOut(ctx, repository.Plan(models, nil), wants) // Failed has all of it
	if err := e.Failed(); err != nil && e.opt.AllOrNothing {
		return fmt.Errorf("failed to load all models; mend them, or serve the others with --exit-on-error=false:\n%w", err)
	}
	e.loaded.Store(true)
	return nil
}

// readAll reads what is wanted of the models, side by side. Those whose folders
// cannot be understood are left out.
func (e *Engine) readAll(found []repository.Entry) map[string]*wanted {
	var wg sync.WaitGroup
	var mu sync.Mutex // protects wants
	wants := make(map[string]*wanted, len(found))
	for _, src := range found {
		e.threads <- struct{}{}
		wg.Go(func() {
			defer func() { <-e.threads }()
			w, err := e.read(src)
			if err != nil {
				e.fail(src.Name, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			wants[src.Name] = w
		})
	}
	wg.Wait()
	return wants
}

// Load loads a model, or what has changed of it since it was loaded, and returns
// when it is ready. While it loads, what is there goes on serving, and still does
// when Load fails. Loads of one model wait for each other. The end of ctx calls
// the load off.
func (e *Engine) Load(ctx context.Context, name string) error {
	if !e.opt.Control {
		return errNoControl
	}
	if !e.loaded.Load() {
		return errStarting
	}
	if err := e.beginChange(); err != nil {
		return err
	}
	defer e.work.Done()
	ctx, cancel := e.untilStop(ctx)
	defer cancel()
	src, err := repository.Find(e.opt.Repositories, name)
	switch {
	case status.CodeOf(err) == status.InvalidArgument:
		return err
	case err != nil:
		return notFound(name, err)
	}
	e.add(name)
	if err := e.takeTurns(ctx, name); err != nil {
		return err
	}
	defer e.giveTurns(name)
	w, err := e.read(src)
	if err != nil {
		e.fail(name, err)
		return notFound(name, err)
	}
	plan := repository.Plan([]repository.Model{w.model}, e.actual(name))
	if len(plan) == 0 {
		e.settle(w)
	}
	return e.carryOut(ctx, plan, map[string]*wanted{name: w})
}

func notFound(name string, err error) error {
	return status.Wrap(status.Internal, err, fmt.Sprintf("failed to load '%s', failed to poll from model repository", name))
}

// Unload takes a model away, and with it the models that call it. It returns as
// soon as they take no more requests; those that have a lease are served, and
// then the model is freed. With dependents the models go, too, that only these
// call. A model that is not known counts as unloaded.
func (e *Engine) Unload(ctx context.Context, name string, dependents bool) error {
	if !e.opt.Control {
		return errNoControl
	}
	if !e.loaded.Load() {
		return errStarting
	}
	if err := e.beginChange(); err != nil {
		return err
	}
	defer e.work.Done()
	names := e.unloadSet(name, dependents)
	if err := e.takeTurns(ctx, names...); err != nil {
		return err
	}
	defer e.giveTurns(names...)
	return e.carryOut(ctx, repository.Plan(nil, e.actual(names...)), nil)
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
