package sched

import (
	"slices"

	"shoal/internal/backend"
)

// plainInstance returns the instance behind what limits it.
func plainInstance(in backend.Instance) backend.Instance {
	if l, ok := in.(*Limited); ok {
		return l.Instance
	}
	return in
}

// watch has changed told when an instance cannot run at times.
func watch(in backend.Instance, changed func(available bool)) {
	if w, ok := plainInstance(in).(backend.Intermittent); ok {
		w.Watch(changed)
	}
}

// setAvailable notes that an instance can run again, or cannot now. One that has
// a batch already deals with that itself.
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
