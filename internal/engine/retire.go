package engine

import (
	"slices"
	"time"
)

// unload unloads versions of a model.
func (e *Engine) unload(name string, versions []int64) {
	var list []*Version
	e.publish(name, func(old *entry) *entry {
		changes := make(map[int64]slot)
		for _, n := range versions {
			if s := old.versions[n]; s.state == StateReady {
				list = append(list, s.v)
				changes[n] = slot{state: StateDraining, v: s.v}
			}
		}
		return old.with(changes)
	})
	e.retire(list, true)
}

// retire drains and frees versions that their entries no longer list as ready,
// and does not wait for that. Versions that are unloaded rather than replaced
// go on giving leases until every version that was retired before and calls
// their model is freed: its requests may still need them.
func (e *Engine) retire(list []*Version, unloaded bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range list {
		var callers []*Version
		for _, other := range e.retired {
			if unloaded && slices.Contains(other.calls, v.id) {
				callers = append(callers, other)
			}
		}
		e.retired = append(e.retired, v)
		e.work.Go(func() {
			for _, c := range callers {
				<-c.freed
			}
			e.drain(v)
		})
	}
}

// drain gives no more leases on v, waits until the existing ones have ended and
// frees it.
func (e *Engine) drain(v *Version) {
	begin := time.Now()
	if v.resized {
		for _, in := range schedulable(v.leaving) {
			v.sched.Remove(in)
		}
	} else {
		v.sched.Hurry()
	}
	v.leases.close()
	<-v.leases.ended
	if v.before != nil { // its instances are of the same model
		<-v.before.freed
		v.before = nil // otherwise every version would keep all before it
	}
	e.free(v)
	switch after := time.Since(begin).Round(time.Millisecond); {
	case !v.resized:
		e.log.Info("unloaded", "model", v.id, "version", v.number, "after", after)
	case len(v.leaving) > 0:
		e.log.Info("instances removed", "model", v.id, "version", v.number, "instances", len(v.leaving), "after", after)
	}
	e.publish(v.id, func(old *entry) *entry {
		e.retired = slices.DeleteFunc(e.retired, func(other *Version) bool { return other == v })
		if old.versions[v.number].v != v {
			return old // it was replaced
		}
		return old.with(map[int64]slot{v.number: {state: StateUnavailable, err: errUnloaded}})
	})
	close(v.freed)
}

// free closes a version that nobody uses.
func (e *Engine) free(v *Version) {
	if err := v.free(); err != nil {
		e.log.Warn("freeing the model", "model", v.id, "version", v.number, "err", err)
	}
}
