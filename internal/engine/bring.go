package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"shoal/internal/repository"
	"shoal/internal/status"
)

// An outcome is the result of loading versions.
type outcome struct {
	opened map[int64]*Version
	failed map[int64]error
	err    error // why none could be tried
}

func (o *outcome) bad() bool { return o.err != nil || len(o.failed) > 0 }

// bring loads versions of a model and replaces what is served. If something is
// served already, it is replaced only if all versions load.
func (e *Engine) bring(ctx context.Context, a repository.Action, w *wanted) error {
	e.setLoading(a.Model, true)
	defer e.setLoading(a.Model, false)
	e.publish(a.Model, func(old *entry) *entry {
		if old.latest != nil {
			return old
		}
		loading := make(map[int64]slot, len(a.Versions))
		for _, n := range a.Versions {
			loading[n] = slot{state: StateLoading}
		}
		return newEntry(old.name, w.model, old.leftovers()).with(loading)
	})
	got := e.openAll(ctx, w, a.Versions)
	var replaced, unused []*Version
	e.publish(a.Model, func(old *entry) (next *entry) {
		if e.stopping.Load() { // Close has been here, or will wait for this
			got.err = errCalledOff
		}
		switch {
		case got.bad() && w.ensemble(): // its models have changed, so that what was served no longer fits
			next, replaced = old.broken(got.err), old.ready()
		case old.latest != nil && got.bad():
			next = old.keeping(a.Versions, got)
		case got.err != nil:
			next = &entry{name: old.name, err: got.err}
		default:
			next, replaced = old.taking(a.Kind, w, got)
			return next
		}
		for _, v := range got.opened {
			unused = append(unused, v)
		}
		return next
	})
	e.retire(replaced, false)
	for _, v := range unused {
		e.free(v)
	}
	switch {
	case e.stopping.Load():
		return errExiting
	case got.bad() && ctx.Err() != nil:
		return gone(ctx)
	case got.bad():
		return loadError(a, got)
	}
	return nil
}

// taking returns the entry after a load: the opened versions are ready, and the
// others that were served drain. replaced are the latter and those that were
// replaced.
func (m *entry) taking(kind repository.Kind, w *wanted, got outcome) (_ *entry, replaced []*Version) {
	plan, slots := m.plan, m.versions
	if kind == repository.Load || kind == repository.Reload { // everything else is over
		plan, slots = w.model, m.leftovers()
	}
	next := newEntry(m.name, plan, slots).with(nil)
	for n, v := range got.opened {
		next.versions[n] = slot{state: StateReady, v: v, stamp: w.model.Versions[n]}
	}
	for n, err := range got.failed {
		next.versions[n] = slot{state: StateUnavailable, err: err}
	}
	for _, v := range m.ready() {
		now, ok := next.versions[v.number]
		if now.v == v {
			continue
		}
		replaced = append(replaced, v)
		if !ok {
			next.versions[v.number] = slot{state: StateDraining, v: v}
		}
	}
	return newEntry(next.name, next.plan, next.versions), replaced
}

// keeping returns the entry after a load that failed while versions are served:
// they stay, with the reason.
func (m *entry) keeping(versions []int64, got outcome) *entry {
	if got.err != nil {
		return m.noted(got.err)
	}
	changes := make(map[int64]slot)
	for _, n := range versions {
		s := m.versions[n]
		if s.state == StateReady {
			s.err = got.failed[n]
		} else if err := got.failed[n]; err != nil {
			s = slot{state: StateUnavailable, err: err}
		}
		if s.state != "" {
			changes[n] = s
		}
	}
	return m.with(changes)
}

// broken returns the entry after a load that failed and what is served has to go
// for that reason.
func (m *entry) broken(err error) *entry {
	if m.latest == nil {
		return &entry{name: m.name, err: err}
	}
	changes := make(map[int64]slot)
	for _, v := range m.ready() {
		changes[v.number] = slot{state: StateUnavailable, err: err}
	}
	return m.with(changes)
}

// leftovers returns the slots that stay when everything wanted is loaded again:
// versions that were unloaded, or are about to be.
func (m *entry) leftovers() map[int64]slot {
	list := make(map[int64]slot)
	for n, s := range m.versions {
		if s.state == StateDraining || s.err == errUnloaded {
			list[n] = s
		}
	}
	return list
}

// fail records that a model cannot be loaded from the disk. What is served
// stays.
func (e *Engine) fail(name string, err error) {
	said := false
	e.publish(name, func(old *entry) *entry {
		said = old.says(err)
		if old.latest != nil {
			return old.noted(err)
		}
		return &entry{name: name, err: err}
	})
	if !said { // each poll finds the error again
		e.log.Error("model not loaded", "model", name, "err", err)
	}
}

// setLoading records whether a model is being loaded.
func (e *Engine) setLoading(name string, loading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if loading {
		e.loading[name] = true
	} else {
		delete(e.loading, name)
	}
}

// loadError returns the outcome of a load in the texts that clients expect.
func loadError(a repository.Action, got outcome) error {
	if got.err != nil {
		return loadFault(a.Model, got.err)
	}
	var text strings.Builder
	for _, n := range a.Versions {
		if err := got.failed[n]; err != nil {
			fmt.Fprintf(&text, "version %d is at %s state: %s;\n", n, StateUnavailable, reason(err))
		}
	}
	return status.Errorf(status.InvalidArgument, "load failed for model '%s': %s", a.Model, text.String())
}

// loadFault returns why nothing of a model could be loaded. The log has more.
func loadFault(name string, err error) error {
	if _, ok := errors.AsType[unreadable](err); ok {
		return status.Errorf(status.Internal, "failed to load '%s', failed to poll from model repository: %s", name, status.Public(err))
	}
	return status.Errorf(status.InvalidArgument, "load failed for model '%s': %s\n", name, status.Public(err))
}

var errCalledOff = status.Errorf(status.Unavailable, "loading was called off: the server is stopping")
