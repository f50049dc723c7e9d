package engine

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
	"shoal/internal/sched"
	"shoal/internal/status"
)

// A member is one instance of a version.
type member struct {
	place     backend.Placement
	instance  backend.Instance
	scheduled backend.Instance // the instance behind its limits; nil when it is passive
	ticket    *sched.Ticket    // nil when nothing limits it
}

// startMembers starts instances of v and has each run the samples. When one fails,
// those before it are closed.
func (e *Engine) startMembers(ctx context.Context, v *Version, places []backend.Placement, samples []sample) (list []member, err error) {
	defer func() {
		if err != nil {
			_ = closeMembers(list) // the start's error is more important
			list = nil
		}
	}()
	instances, err := v.startInstances(ctx, places)
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		list = append(list, member{place: p, instance: instances[i]})
	}
	for i, p := range places {
		m := &list[i]
		if p.Group.GetPassive() {
			continue
		}
		if err = v.warmUp(ctx, m.instance, samples); err != nil {
			return list, err
		}
		m.scheduled = m.instance
		if e.opt.Limiter != nil {
			if m.ticket, err = e.opt.Limiter.Join(p.Group.GetRateLimiter(), p.GPU); err != nil {
				return list, err
			}
			m.scheduled = &sched.Limited{Instance: m.instance, Ticket: m.ticket}
		}
	}
	return list, nil
}

// startInstances starts an instance at each place, as many at a time as there are
// cores if the model allows it. When one fails, the others are closed.
func (v *Version) startInstances(ctx context.Context, places []backend.Placement) ([]backend.Instance, error) {
	most := 1
	if _, ok := v.model.(backend.StartsInParallel); ok {
		most = maxStarts()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex // protects fault
	var fault error
	list, free := make([]backend.Instance, len(places)), make(chan struct{}, most)
	for i, p := range places {
		free <- struct{}{}
		mu.Lock()
		failed := fault != nil
		mu.Unlock()
		if failed {
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			in, err := v.model.Start(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				list[i] = in
			case fault == nil: // it ends the others
				fault = err
				cancel()
			}
		})
	}
	wg.Wait()
	if fault == nil {
		return list, nil
	}
	for _, in := range list {
		if in != nil {
			_ = in.Close() // the start's error is more important
		}
	}
	return nil, fault
}

// maxStarts is how many instances start at a time at most: importing packages
// uses a core for each.
func maxStarts() int { return max(2, runtime.GOMAXPROCS(0)) }

// checkActive fails when no instance would get work.
func checkActive(name string, places []backend.Placement) error {
	if slices.ContainsFunc(places, func(p backend.Placement) bool { return !p.Group.GetPassive() }) {
		return nil
	}
	return status.Errorf(status.InvalidArgument, "every instance group of model '%s' is passive, so that nothing would run its requests; take passive from one", name)
}

// closeMembers frees instances and returns the first error.
func closeMembers(list []member) (first error) {
	for _, m := range list {
		if m.ticket != nil {
			m.ticket.Leave()
		}
		first = cmp.Or(first, m.instance.Close())
	}
	return first
}

// schedulable returns the instances that get work.
func schedulable(list []member) (out []backend.Instance) {
	for _, m := range list {
		if m.scheduled != nil {
			out = append(out, m.scheduled)
		}
	}
	return out
}

// active returns how many instances get work.
func (v *Version) active() int { return len(schedulable(v.members)) }

// placements lists the instances of a normalised configuration.
func placements(cfg *modelpb.ModelConfig) []backend.Placement {
	var list []backend.Placement
	for _, g := range cfg.GetInstanceGroup() {
		gpus := []int32{0}
		if g.GetKind() == modelpb.ModelInstanceGroup_KIND_GPU && len(g.GetGpus()) > 0 {
			gpus = g.GetGpus()
		}
		for _, gpu := range gpus {
			for range g.GetCount() {
				list = append(list, backend.Placement{Kind: g.GetKind(), GPU: int(gpu), Group: g})
			}
		}
	}
	perGroup := make(map[*modelpb.ModelInstanceGroup]int)
	onGPU := make(map[int]int)
	for _, p := range list {
		if p.Kind == modelpb.ModelInstanceGroup_KIND_GPU {
			onGPU[p.GPU]++
		}
	}
	for i := range list {
		p := &list[i]
		if p.Kind == modelpb.ModelInstanceGroup_KIND_GPU {
			p.Share = onGPU[p.GPU]
		}
		p.Name = fmt.Sprintf("%s_%d", p.Group.GetName(), perGroup[p.Group])
		p.Count = len(list)
		perGroup[p.Group]++
	}
	return list
}

// reassign decides which instances stay when a version should have those at
// want: the ones that differ only in their name. start are the missing
// placements, with unused names.
func reassign(have []member, want []backend.Placement) (stay, leave []member, start []backend.Placement) {
	leave = slices.Clone(have)
	take := func(fits func(member) bool) bool {
		at := slices.IndexFunc(leave, fits)
		if at < 0 {
			return false
		}
		stay = append(stay, leave[at])
		leave = slices.Delete(leave, at, at+1)
		return true
	}
	var open []backend.Placement
	for _, p := range want { // those of the same name first, so that the last ones leave
		if !take(func(m member) bool { return m.place.Name == p.Name && alike(m.place, p) }) {
			open = append(open, p)
		}
	}
	for _, p := range open {
		if !take(func(m member) bool { return alike(m.place, p) }) {
			start = append(start, p)
		}
	}
	names := make(map[string]bool, len(want))
	for _, m := range stay {
		names[m.place.Name] = true
	}
	for i := range start {
		p := &start[i]
		for n := 0; names[p.Name]; n++ {
			p.Name = fmt.Sprintf("%s_%d", p.Group.GetName(), n)
		}
		names[p.Name] = true
	}
	return stay, leave, start
}

// alike reports whether an instance at a can serve for one at b. The total
// number does not matter: an instance keeps the threads that it was given.
func alike(a, b backend.Placement) bool {
	x, y := proto.Clone(a.Group).(*modelpb.ModelInstanceGroup), proto.Clone(b.Group).(*modelpb.ModelInstanceGroup)
	x.Name, x.Count, x.Gpus, y.Name, y.Count, y.Gpus = "", 0, nil, "", 0, nil
	return a.Kind == b.Kind && a.GPU == b.GPU && proto.Equal(x, y)
}
