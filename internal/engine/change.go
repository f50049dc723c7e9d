package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

	"shoal/internal/repository"
)

// beginChange counts a change of what is served. The caller must call work.Done
// at its end. It fails when the engine is stopping.
func (e *Engine) beginChange() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping.Load() {
		return errExiting
	}
	e.work.Add(1)
	return nil
}

// untilStop returns a context that also ends when the engine stops.
func (e *Engine) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-e.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// takeTurns waits until nobody else changes the models. Their names must be
// sorted, so that two changes of several models cannot wait for each other.
// Unknown names are ignored.
func (e *Engine) takeTurns(ctx context.Context, names ...string) error {
	models := *e.models.Load()
	for i, name := range names {
		m := models[name]
		if m == nil {
			continue
		}
		select {
		case m.turn <- struct{}{}:
		case <-ctx.Done():
			e.giveTurns(names[:i]...)
			return gone(ctx)
		}
	}
	return nil
}

func (e *Engine) giveTurns(names ...string) {
	models := *e.models.Load()
	for _, name := range names {
		if m := models[name]; m != nil {
			<-m.turn
		}
	}
}

// actual returns the models in the form that a plan needs.
func (e *Engine) actual(names ...string) []repository.Model {
	models := *e.models.Load()
	var list []repository.Model
	for _, name := range names {
		if m := models[name]; m != nil {
			list = append(list, m.entry.Load().actual())
		}
	}
	return list
}

// plan returns the actions that lead to the wanted states, and to the end of the
// models in gone. It also adds those of the models in waiting, when the models
// that they call change, to wants. The caller has the models' turns.
func (e *Engine) plan(wants, waiting map[string]*wanted, gone []string) []repository.Action {
	for {
		var desired []repository.Model
		for _, w := range wants {
			desired = append(desired, w.model)
		}
		plan := repository.Plan(desired, e.actual(append(slices.Collect(maps.Keys(wants)), gone...)...))
		grew := false
		for name, w := range waiting {
			if slices.ContainsFunc(plan, func(a repository.Action) bool {
				return a.Kind != repository.Resize && slices.Contains(w.model.Calls, a.Model)
			}) {
				wants[name] = w
				delete(waiting, name)
				grew = true
			}
		}
		if !grew {
			return plan
		}
	}
}

// carryOut carries out a plan: the actions of one model in turn, up to the
// first that fails, and different models concurrently. The caller has the
// models' turns. It returns the errors by model.
func (e *Engine) carryOut(ctx context.Context, plan []repository.Action, wants map[string]*wanted) map[string]error {
	var wg sync.WaitGroup
	var mu sync.Mutex // protects errs
	errs := make(map[string]error)
	ended := make(map[string]chan struct{}) // by model
	for len(plan) > 0 {
		name := plan[0].Model
		n := slices.IndexFunc(plan, func(a repository.Action) bool { return a.Model != name })
		if n < 0 {
			n = len(plan)
		}
		actions := plan[:n]
		plan = plan[n:]
		var before []chan struct{}
		for _, other := range actions[0].After {
			before = append(before, ended[other])
		}
		done := make(chan struct{})
		ended[name] = done
		e.threads <- struct{}{} // the models that it waits for have theirs
		wg.Go(func() {
			defer func() { <-e.threads }()
			defer close(done)
			for _, c := range before {
				<-c
			}
			if err := e.apply(ctx, actions, wants[name]); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[name] = err
			}
		})
	}
	wg.Wait()
	return errs
}

// apply carries out the actions of one model. w is the desired state, nil when
// the model is to be removed.
func (e *Engine) apply(ctx context.Context, actions []repository.Action, w *wanted) error {
	err := e.act(ctx, actions, w)
	switch {
	case err == nil && w != nil:
		e.settle(w)
		if actions[len(actions)-1].Kind == repository.Unload { // until a model that it calls is there again
			(*e.models.Load())[w.src.ID()].refused = &w.model
		}
	case err != nil && ctx.Err() == nil:
		(*e.models.Load())[w.src.ID()].refused = &w.model
	}
	return err
}

func (e *Engine) act(ctx context.Context, actions []repository.Action, w *wanted) error {
	for _, a := range actions {
		switch a.Kind {
		case repository.RemoveVersions, repository.Unload:
			e.unload(a.Model, a.Versions)
		case repository.Resize:
			if err := e.resize(ctx, a, w); err != nil {
				return err
			}
		default:
			if err := e.bring(ctx, a, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle records that what is served is what is wanted.
func (e *Engine) settle(w *wanted) {
	(*e.models.Load())[w.src.ID()].refused = nil
	e.publish(w.src.ID(), func(old *entry) *entry {
		next := old.noted(nil)
		return newEntry(next.name, w.model, next.versions)
	})
}

// publish replaces the entry of a model. It keeps nothing of a model that is no
// longer known, when a version of it has drained.
func (e *Engine) publish(name string, next func(old *entry) *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := (*e.models.Load())[name]
	if m == nil {
		_ = next(newEntry(name, repository.Model{}, nil))
		return
	}
	m.entry.Store(next(m.entry.Load()))
}
