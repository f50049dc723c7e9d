package sched

import (
	"context"
	"runtime"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// Direct is the scheduler without batching: each request is its own execution,
// first come first served, on whichever instance is idle. The caller's
// goroutine runs the model, so a request that finds an idle instance costs no
// switch between goroutines. While requests wait, the runner of an instance
// runs them, if the runs are long enough for that to pay.
type Direct struct {
	pool
	waiters sync.Pool
	queue   waitList // under the pool's mutex
}

// A waiter is a request that waits for an instance. It is in the queue until it
// is taken out under the mutex. It then gets an instance to run on, or nil when
// a runner has run it.
type waiter struct {
	request    *infer.Request
	ready      chan *instance // buffered 1
	err        error          // the error of the run
	prev, next *waiter
	queued     bool
}

// StartDirect returns a scheduler over the instances, which stay the caller's
// and must outlive it.
func StartDirect(instances []backend.Instance, record Recorder) *Direct {
	d := &Direct{pool: newPool(record)}
	d.changed, d.serve, d.yields = d.advance, d.runWaiter, runtime.NumCPU() == 1
	d.waiters.New = func() any { return &waiter{ready: make(chan *instance, 1)} }
	_ = d.Add(instances...) // cannot fail here
	return d
}

// Do implements Scheduler.
func (d *Direct) Do(ctx context.Context, r *infer.Request) error {
	r.Queued = time.Now()
	i, err := d.acquire(ctx, r)
	if i == nil {
		return err
	}
	if i.ticket.Await(ctx) != nil {
		d.release(i)
		return cancelled(ctx)
	}
	err = d.runOn(i, r)
	d.release(i)
	i.ticket.Release()
	return err
}

// runOn runs a request on an instance.
func (d *Direct) runOn(i *instance, r *infer.Request) error {
	b := &i.batch
	b.Requests = append(b.Requests[:0], r)
	b.Rows = r.Rows
	r.Started = true
	b.Times = infer.Times{Start: time.Now()}
	d.record.Started(b)
	err := d.run(i, b)
	i.observe(b.Times.End.Sub(b.Times.Start))
	b.Requests[0] = nil
	if err == nil {
		err = r.Err
	}
	return err
}

// acquire returns an idle instance, waiting for one if necessary. It returns
// nil with the request's error when an instance's runner has run the request,
// and nil with an error when it was not run.
func (d *Direct) acquire(ctx context.Context, r *infer.Request) (*instance, error) {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		r.Outcome = infer.Refused
		return nil, stopping(r)
	}
	d.enter(1)
	if len(d.idle) > 0 {
		i := d.take()
		d.mu.Unlock()
		entered(r)
		return i, nil
	}
	w := d.waiters.Get().(*waiter)
	w.request = r
	d.queue.push(w)
	d.mu.Unlock()
	entered(r)

	select {
	case i := <-w.ready:
		return i, d.put(w)
	case <-ctx.Done():
	}
	d.mu.Lock()
	queued := w.queued
	if queued {
		d.queue.remove(w)
		d.leave(1)
	}
	d.mu.Unlock()
	if !queued {
		i := <-w.ready
		if i == nil { // a runner has it
			return nil, d.put(w)
		}
		i.ticket.Cancel()
		d.release(i) // pass it on
	}
	_ = d.put(w)
	return nil, cancelled(ctx)
}

// put recycles a waiter and returns its request's error.
func (d *Direct) put(w *waiter) error {
	err := w.err
	w.request, w.err = nil, nil
	d.waiters.Put(w)
	return err
}

// entered calls the request's Entered.
func entered(r *infer.Request) {
	if r.Entered != nil {
		r.Entered()
	}
}

// release ends a request's time on an instance.
func (d *Direct) release(i *instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free(i, time.Time{})
	d.leave(1)
}

// advance gives idle instances to waiting requests.
func (d *Direct) advance(time.Time) {
	for d.queue.n > 0 && len(d.idle) > 0 {
		w, i := d.queue.pop(), d.take()
		if !i.ownsThread() {
			w.ready <- i // buffered: does not block
			continue
		}
		d.handOver(i, w)
	}
}

// runWaiter runs a waiter's request on an instance. The instance's runner calls it.
func (d *Direct) runWaiter(i *instance, what any) {
	w := what.(*waiter)
	w.err = d.runOn(i, w.request)
	d.lockOnThread()
	d.free(i, time.Time{}) // may give the runner its next
	d.leave(1)
	d.mu.Unlock()
	w.ready <- nil
}

// Pending returns the number of requests that wait for an instance.
func (d *Direct) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.n
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

// pop takes the oldest waiter out. There must be one.
func (l *waitList) pop() *waiter {
	w := l.head
	l.remove(w)
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
