package sched

import (
	"slices"

	"shoal/internal/backend"
)

// plainInstance returns the instance behind a Limited one.
func plainInstance(in backend.Instance) backend.Instance {
	if l, ok := in.(*Limited); ok {
		return l.Instance
	}
	return in
}

// watch calls changed when an instance becomes unavailable or available again.
func watch(in backend.Instance, changed func(available bool)) {
	if w, ok := plainInstance(in).(backend.Intermittent); ok {
		w.Watch(changed)
	}
}

// setAvailable records whether an instance can run. One that already has a
// batch handles that itself.
func (p *pool) setAvailable(i *instance, available bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := !i.unavailable
	i.unavailable = !available
	if was == available || i.batches > 0 || !slices.Contains(p.all, i) {
		return
	}
	if available {
		p.idle = append(p.idle, i)
	} else {
		p.unlist(i)
	}
	p.changed(p.now())
}
