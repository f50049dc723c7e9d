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

// offer notes that a worker's instance can run again, or cannot now. One that is
// given a batch already deals with that itself.
func (b *Batcher) offer(w *worker, available bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.away = !available
	if w.parked && available {
		w.parked = false
		b.rest(w)
		b.advance(b.now())
	}
	if w.away && (b.dismiss(&b.idle, w) || b.dismiss(&b.spare, w)) {
		w.parked = true
		b.guard() // nobody may be idle now, so that the door can be open
	}
}

// dismiss takes a worker out of a list and reports whether it was there.
func (b *Batcher) dismiss(list *[]*worker, w *worker) bool {
	i := slices.Index(*list, w)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return i >= 0
}

// rest makes a worker ready for the next batch. While another runs a batch on the
// same instance it is only for full ones: any other may still grow.
func (b *Batcher) rest(w *worker) {
	switch {
	case w.away:
		w.parked = true
		return
	case len(b.all) == b.workers:
		b.idle = append(b.idle, w)
		return
	}
	b.spare = append(b.spare, w)
	if last := len(b.all) - 1; len(b.spare) > last {
		b.idle = append(b.idle, b.spare[last])
		b.spare = b.spare[:last]
	}
}

// offer notes that a worker's instance can run again, or cannot now.
func (d *Direct) offer(w *directWorker, available bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.away = !available
	if w.parked && available {
		w.parked = false
		d.parked--
		d.restLocked(w)
	}
	if i := slices.Index(d.idle, w); i >= 0 && w.away {
		d.idle = slices.Delete(d.idle, i, i+1)
		w.parked = true
		d.parked++
	}
}
