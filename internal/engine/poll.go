package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"shoal/internal/repository"
)

// StartPolling makes the engine check the repositories every interval, and load
// and unload what has changed, until it is stopped.
func (e *Engine) StartPolling(interval time.Duration) {
	if e.beginChange() != nil {
		return
	}
	go func() {
		defer e.work.Done()
		tick := time.NewTicker(interval)
		defer tick.Stop()
		failed := ""
		for {
			select {
			case <-e.stop:
				return
			case <-tick.C:
			}
			now := ""
			if err := e.Poll(context.Background()); err != nil {
				now = err.Error()
			}
			if now != "" && now != failed && !e.stopping.Load() {
				e.log.Warn("the repositories cannot be read; what is loaded goes on", "err", now)
			}
			failed = now
		}
	}()
}

// Poll makes what is served follow the repositories: it loads new models,
// unloads removed ones and reloads changed ones. It tries a failed model again
// once it has changed. It fails only when a repository cannot be read; then
// nothing changes.
func (e *Engine) Poll(ctx context.Context) error {
	_, err := e.Follow(ctx)
	return err
}

// Follow is Poll, and returns the models whose change could not be served, sorted. What
// was served of them goes on.
func (e *Engine) Follow(ctx context.Context) (failed []string, err error) {
	if err := e.beginChange(); err != nil {
		return nil, err
	}
	defer e.work.Done()
	ctx, cancel := e.untilStop(ctx)
	defer cancel()
	found, ambiguous, err := e.repos.Scan()
	if err != nil {
		return nil, err
	}
	if failed, err = e.follow(ctx, found, ambiguous, nil); err != nil {
		return nil, err
	}
	e.forget(found, ambiguous)
	return failed, nil
}

// follow makes the engine serve the models that were found, and no others. The
// ones in implied are there for others that call them. It returns the models that
// could not be read or loaded, sorted.
func (e *Engine) follow(ctx context.Context, found []repository.Entry, ambiguous []string, implied map[string]bool) (failed []string, _ error) {
	var names []string
	for _, src := range found {
		names = append(names, src.ID())
	}
	e.add(slices.Concat(ambiguous, names)...)
	all := slices.Sorted(maps.Keys(*e.models.Load()))
	if err := e.takeTurns(ctx, all...); err != nil {
		return nil, err
	}
	defer e.giveTurns(all...)
	wants := e.readAll(found)
	models := *e.models.Load()
	// Models that cannot be read stay as they are, and so do unchanged models
	// that failed, unless one that they call changes.
	waiting := make(map[string]*wanted)
	gone := maps.Clone(models)
	for _, name := range names {
		delete(gone, name)
		m, w := models[name], wants[name]
		if w == nil {
			failed = append(failed, name)
			continue
		}
		m.wish.Store(&wish{explicit: !implied[name], want: w})
		if m.refused != nil && len(repository.Plan([]repository.Model{w.model}, []repository.Model{*m.refused})) == 0 {
			waiting[name] = w
			delete(wants, name)
		}
	}
	for _, m := range gone {
		if m.installed.Load() {
			delete(gone, m.name)
			continue
		}
		m.wish.Store(nil)
	}
	plan := e.plan(wants, waiting, slices.Collect(maps.Keys(gone)))
	e.settleRest(plan, wants)
	failed = append(failed, slices.Collect(maps.Keys(e.carryOut(ctx, plan, wants)))...) // Failed and the log have the reasons
	slices.Sort(failed)
	for _, name := range ambiguous { // as in Triton, what was served of them is unloaded
		e.confuse(name)
	}
	return failed, ctx.Err()
}

// confuse records that several repositories have a model of that name, of which
// nothing is served any more.
func (e *Engine) confuse(name string) {
	(*e.models.Load())[name].onDisk = nil
	known := false
	e.publish(name, func(old *entry) *entry {
		known = old.ambiguous
		next := *old // with the versions that drain
		next.ambiguous, next.err = true, errAmbiguous
		return &next
	})
	if !known { // each poll finds it again
		e.log.Error("model not loaded", "model", name, "err", errAmbiguous)
	}
}

// settleRest records that models without an action are as desired: they may
// have been broken and repaired since.
func (e *Engine) settleRest(plan []repository.Action, wants map[string]*wanted) {
	acted := make(map[string]bool, len(plan))
	for _, a := range plan {
		acted[a.Model] = true
	}
	models := *e.models.Load()
	for name, w := range wants {
		if !acted[name] && models[name].entry.Load().faulty() {
			e.settle(w)
		}
	}
}

// forget removes the models that the repositories no longer have, once nothing
// of them is loaded.
func (e *Engine) forget(found []repository.Entry, ambiguous []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	there := make(map[string]bool, len(found))
	for _, src := range found {
		there[src.ID()] = true
	}
	for _, name := range ambiguous {
		there[name] = true
	}
	next := maps.Clone(*e.models.Load())
	maps.DeleteFunc(next, func(name string, m *managed) bool {
		return !there[name] && !m.installed.Load() && m.entry.Load().over()
	})
	e.models.Store(&next)
}

// readAll reads the desired states of the models concurrently. It leaves out
// those whose folders cannot be read.
func (e *Engine) readAll(found []repository.Entry) map[string]*wanted {
	var wg sync.WaitGroup
	var mu sync.Mutex // protects wants
	wants := make(map[string]*wanted, len(found))
	for _, src := range found {
		e.threads <- struct{}{}
		wg.Go(func() {
			defer func() { <-e.threads }()
			w := e.readChanged(src)
			if w == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			wants[src.ID()] = w
		})
	}
	wg.Wait()
	return wants
}

// readChanged returns the desired state of a model, nil when its folder cannot be
// read. It reads the folder only if something in it has changed since the last
// poll. The caller has the model's turn.
func (e *Engine) readChanged(src repository.Entry) *wanted {
	m := (*e.models.Load())[src.ID()]
	stamp := src.TreeStamp() // before the files are read, so that a later change counts
	if m.onDisk != nil && m.stamp == stamp && !(e.repos.Namespaces && m.onDisk.ensemble()) {
		return m.onDisk
	}
	w, err := e.read(src, nil)
	if err != nil {
		m.onDisk = nil
		e.fail(src.ID(), err)
		return nil
	}
	m.onDisk, m.stamp = w, stamp
	return w
}
