package engine

import (
	"context"
	"maps"

	"shoal/internal/model/modelpb"
	"shoal/internal/repository"
	"shoal/internal/status"
)

// Install serves the model in dir, which has the layout of a model's folder in a
// repository, under cfg, and returns when it is ready. It is for models that the
// server itself brings, apart from the repositories and from what clients may
// Load. What is served of the model goes on until the new one is ready; where
// only the instances differ, they are started and removed one by one. The folder
// must stay until Uninstall has returned.
func (e *Engine) Install(ctx context.Context, name, dir string, cfg *modelpb.ModelConfig) error {
	if err := e.beginChange(); err != nil {
		return err
	}
	defer e.work.Done()
	ctx, cancel := e.untilStop(ctx)
	defer cancel()
	if err := e.claim(name); err != nil {
		return err
	}
	if err := e.takeTurns(ctx, name); err != nil {
		return err
	}
	w, err := e.read(repository.Entry{Name: name, Dir: dir}, cfg)
	if err != nil {
		err = loadFault(name, err)
	} else {
		plan := repository.Plan([]repository.Model{w.model}, e.actual(name))
		err = e.carryOut(ctx, plan, map[string]*wanted{name: w})[name]
	}
	e.giveTurns(name)
	if err != nil {
		e.disown(name)
	}
	return err
}

// disown forgets an installed model of which nothing is loaded.
func (e *Engine) disown(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	models := *e.models.Load()
	if m := models[name]; m == nil || !m.installed.Load() || !m.entry.Load().over() {
		return
	}
	next := maps.Clone(models)
	delete(next, name)
	e.models.Store(&next)
}

// claim adds a name for Install. It fails when the name is a repository's.
func (e *Engine) claim(name string) error {
	if m := (*e.models.Load())[name]; m != nil {
		if !m.installed.Load() {
			return status.Errorf(status.AlreadyExists, "a repository has a model '%s' already", name)
		}
		return nil
	}
	if _, err := e.repos.Find(name); status.CodeOf(err) != status.NotFound {
		return status.Errorf(status.AlreadyExists, "a repository has a model '%s' already", name)
	}
	e.add(name)
	(*e.models.Load())[name].installed.Store(true)
	return nil
}

// Uninstall unloads a model that Install has brought. Requests that have a lease
// are served; it returns when the model is freed, or ctx ends, and then the model
// is forgotten as soon as it is freed.
func (e *Engine) Uninstall(ctx context.Context, name string) error {
	if err := e.beginChange(); err != nil {
		return err
	}
	defer e.work.Done()
	m := (*e.models.Load())[name]
	if m == nil || !m.installed.Load() {
		return nil
	}
	if err := e.takeTurns(ctx, name); err != nil {
		return err
	}
	ready := m.entry.Load().ready()
	err := e.carryOut(ctx, repository.Plan(nil, e.actual(name)), nil)[name]
	e.giveTurns(name)
	if err != nil {
		return err
	}
	for _, v := range ready {
		select {
		case <-v.freed:
		case <-ctx.Done():
			return gone(ctx)
		}
	}
	e.disown(name)
	return nil
}
