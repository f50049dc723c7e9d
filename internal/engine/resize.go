package engine

import (
	"context"

	"google.golang.org/protobuf/proto"

	"shoal/internal/backend"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/repository"
)

// A resizing is a version and the changes of its instances.
type resizing struct {
	old         *Version
	config      *modelpb.ModelConfig
	stay, leave []member
	started     []member
}

// resize gives served versions the instances that w wants. It only starts and
// removes instances: requests stay in their scheduler.
func (e *Engine) resize(ctx context.Context, a repository.Action, w *wanted) error {
	if len(w.cfg.GetInstanceGroup()) == 0 { // the backend may decide how many there are
		return e.bring(ctx, a, w)
	}
	e.setLoading(a.Model, true)
	defer e.setLoading(a.Model, false)
	var list []*resizing
	var err error
	current := (*e.models.Load())[a.Model].entry.Load()
	for _, n := range a.Versions {
		var r *resizing
		if r, err = e.startResizing(ctx, current.versions[n].v, w); err != nil {
			got := outcome{failed: map[int64]error{n: err}}
			e.log.Error("instances not changed", "model", a.Model, "version", n, "err", err)
			e.publish(a.Model, func(old *entry) *entry { return old.keeping([]int64{n}, got) })
			err = loadError(a, got)
			break
		}
		list = append(list, r)
	}
	if err == nil {
		err = e.finishResizing(a.Model, list)
	}
	if err != nil {
		for _, r := range list {
			_ = closeMembers(r.started) // they have no work yet
		}
		if ctx.Err() != nil && !e.stopping.Load() {
			return gone(ctx)
		}
	}
	return err
}

// startResizing starts the missing instances of a version.
func (e *Engine) startResizing(ctx context.Context, v *Version, w *wanted) (*resizing, error) {
	cfg := proto.Clone(v.config).(*modelpb.ModelConfig)
	cfg.InstanceGroup = proto.Clone(w.cfg).(*modelpb.ModelConfig).InstanceGroup
	machine := machineOf(e.backends[cfg.GetBackend()])
	model.Normalize(cfg, machine)
	if err := model.Validate(cfg, machine); err != nil {
		return nil, err
	}
	places := placements(cfg)
	if err := checkActive(v.sig.Name, places); err != nil {
		return nil, err
	}
	samples, err := warmups(w.src, cfg, v.sig)
	if err != nil {
		return nil, err
	}
	stay, leave, start := reassign(v.members, places)
	started, err := e.startMembers(ctx, v, start, samples)
	if err != nil {
		return nil, err
	}
	return &resizing{old: v, config: cfg, stay: stay, leave: leave, started: started}, nil
}

// finishResizing gives the new instances work and removes the others when they
// have ended theirs.
func (e *Engine) finishResizing(name string, list []*resizing) (err error) {
	var replaced []*Version
	e.publish(name, func(old *entry) *entry {
		if e.stopping.Load() { // Close frees what the versions have now
			err = errExiting
			return old
		}
		changes := make(map[int64]slot)
		for _, r := range list {
			next := r.old.resize(r)
			s := old.versions[r.old.number]
			s.v = next
			changes[next.number] = s
			replaced = append(replaced, r.old)
			for _, in := range schedulable(r.started) {
				if failed := next.sched.Add(in); failed != nil {
					err = failed // the instance stays, without work, until the version is freed
				}
			}
			e.log.Info("instances changed", "model", name, "version", next.number, "instances", next.active(), "started", len(r.started), "leaving", len(r.leave))
		}
		return old.with(changes)
	})
	e.retire(replaced, false)
	if err != nil && len(replaced) > 0 {
		e.log.Error("an instance cannot be given work", "model", name, "err", err)
		return nil
	}
	return err
}

// resize returns the version that replaces v: it shares everything but the
// instances.
func (v *Version) resize(r *resizing) *Version {
	next := &Version{
		id: v.id, namespace: v.namespace, number: v.number, config: r.config, sig: v.sig, model: v.model, members: append(r.stay, r.started...), sched: v.sched,
		decoupled: v.decoupled, queueSize: v.queueSize, stats: v.stats, cached: v.cached, arrived: v.arrived,
		loaded: v.loaded, loadDuration: v.loadDuration, calls: v.calls, store: v.store,
		freed: make(chan struct{}), before: v,
	}
	next.leases.init()
	v.resized, v.leaving = true, r.leave
	return next
}

// machineOf describes where a backend's instances can be placed.
func machineOf(b backend.Backend) (machine model.NormalizeOptions) {
	if a, ok := b.(backend.Accelerated); ok {
		if machine.GPUs = a.GPUs(); machine.GPUs == 0 {
			machine.WhyNoGPUs = a.WhyNoGPUs()
		}
	}
	return machine
}
