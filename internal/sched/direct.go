package sched

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/status"
)

// Direct is the scheduler without batching: each request is an execution of its
// own, first come first served, on whichever instance is idle. The caller's
// goroutine runs the model, so a request that finds an idle instance costs no
// hand-over between goroutines.
type Direct struct {
	record  Recorder
	all     []*directWorker
	waiters sync.Pool

	mu      sync.Mutex // protects the fields below
	idle    []*directWorker
	parked  int // workers that would be idle if they were not away
	queue   waitList
	closing bool
	ended   bool          // drained is closed
	drained chan struct{} // closed when closing and every worker is idle
}

type directWorker struct {
	instance backend.Instance
	ticket   *Ticket // nil when nothing limits it
	batch    infer.Batch

	// Under the scheduler's mutex.
	away   bool // the instance cannot run now
	parked bool // it would be idle if it were not away
}

// A waiter is a request that waits for an instance. It is in the queue until
// somebody takes it out, under the mutex, and sends it a worker.
type waiter struct {
	ready      chan *directWorker // buffered 1
	prev, next *waiter
	queued     bool
}

// StartDirect returns a scheduler over the instances, which stay the caller's
// and must outlive it.
func StartDirect(instances []backend.Instance, record Recorder) *Direct {
	d := &Direct{record: record, drained: make(chan struct{})}
	d.waiters.New = func() any { return &waiter{ready: make(chan *directWorker, 1)} }
	for _, in := range instances {
		w := &directWorker{instance: in, ticket: ticketOf(in)}
		d.all = append(d.all, w)
		d.idle = append(d.idle, w)
	}
	for _, w := range d.all {
		watch(w.instance, func(available bool) { d.offer(w, available) })
	}
	return d
}

// Do implements Scheduler.
func (d *Direct) Do(ctx context.Context, r *infer.Request) error {
	r.Queued = time.Now()
	w, err := d.acquire(ctx, r)
	if err != nil {
		return err
	}
	if err := w.ticket.Await(ctx); err != nil {
		d.release(w)
		return cancelled(ctx)
	}
	b := &w.batch
	b.Requests = append(b.Requests[:0], r)
	b.Rows = r.Rows
	r.Started = true
	b.Times = infer.Times{Start: time.Now()}
	d.record.Started(b)
	err = execute(w.instance, b)
	b.Times.End = time.Now()
	d.record.Executed(b, err)
	b.Requests[0] = nil
	d.release(w)
	w.ticket.Release()
	if err == nil {
		err = r.Err
	}
	return err
}

// execute calls the instance and turns a panic of ours into an error, so that the
// instance is not lost to the scheduler.
func execute(in backend.Instance, b *infer.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Wrap(status.Internal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "the model's execution broke; the server's log has the details")
		}
	}()
	return in.Run(b)
}

// acquire returns an idle instance, waiting for one if need be.
func (d *Direct) acquire(ctx context.Context, r *infer.Request) (*directWorker, error) {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		r.Queued = time.Time{}
		return nil, stopping(r)
	}
	if len(d.idle) > 0 {
		w := d.takeLocked()
		d.mu.Unlock()
		entered(r)
		return w, nil
	}
	wt := d.waiters.Get().(*waiter)
	d.queue.push(wt)
	d.mu.Unlock()
	entered(r)

	select {
	case w := <-wt.ready:
		d.waiters.Put(wt)
		return w, nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	queued := wt.queued
	if queued {
		d.queue.remove(wt)
		d.endLocked()
	}
	d.mu.Unlock()
	if !queued { // an instance was handed over meanwhile: pass it on
		w := <-wt.ready
		w.ticket.Cancel()
		d.release(w)
	}
	d.waiters.Put(wt)
	return nil, cancelled(ctx)
}

// takeLocked takes an idle instance.
func (d *Direct) takeLocked() *directWorker {
	next := nextIdle(d.idle, func(w *directWorker) *Ticket { return w.ticket })
	w := d.idle[next]
	d.idle = slices.Delete(d.idle, next, next+1)
	w.ticket.Ask()
	return w
}

// entered tells whoever wants to know that r is in the queue.
func entered(r *infer.Request) {
	if r.Entered != nil {
		r.Entered()
	}
}

// release gives an instance to the first waiter, or makes it idle.
func (d *Direct) release(w *directWorker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restLocked(w)
}

func (d *Direct) restLocked(w *directWorker) {
	if w.away {
		w.parked = true
		d.parked++
		d.endLocked()
		return
	}
	if wt := d.queue.pop(); wt != nil {
		w.ticket.Ask()
		wt.ready <- w // buffered: does not block
		return
	}
	d.idle = append(d.idle, w)
	d.endLocked()
}

// endLocked says so when the last request has gone.
func (d *Direct) endLocked() {
	if d.closing && d.queue.n == 0 && len(d.idle)+d.parked == len(d.all) && !d.ended {
		d.ended = true
		close(d.drained)
	}
}

// Pending returns the number of requests that wait for an instance.
func (d *Direct) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.n
}

// Drain implements Scheduler.
func (d *Direct) Drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return
	}
	d.closing = true
	d.endLocked()
}

// Close implements Scheduler.
func (d *Direct) Close() {
	d.Drain()
	<-d.drained
}

// A waitList is a first-in first-out list of waiters.
type waitList struct {
	head, tail *waiter
	n          int
}

func (l *waitList) push(w *waiter) {
	w.queued, w.prev, w.next = true, l.tail, nil
	if l.tail != nil {
		l.tail.next = w
	} else {
		l.head = w
	}
	l.tail = w
	l.n++
}

func (l *waitList) pop() *waiter {
	w := l.head
	if w != nil {
		l.remove(w)
	}
	return w
}

func (l *waitList) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	w.queued, w.prev, w.next = false, nil, nil
	l.n--
}
