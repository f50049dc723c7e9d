package sched

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/status"
)

// A pool has the instances of a model: which of them are idle, which run a
// batch and which cannot run now. It executes and records batches, and knows
// when the last request has its answer. Every scheduler is built on one.
type pool struct {
	record    Recorder
	serve     func(*instance, any)   // runs a waiter or a batch on an instance, for its runner
	changed   func(now time.Time)    // lets the scheduler look at the instances again; called with the mutex held
	newPauser func() (pauser, error) // nil when nobody waits with an instance
	yields    bool                   // runners let others run between runs
	born      time.Time
	drained   chan struct{} // closed when closing and nothing is in flight

	mu       sync.Mutex // protects the fields below, and what the scheduler keeps
	all      []*instance
	idle     []*instance // those without a batch that can run
	inFlight int         // requests that have no answer yet
	hurried  bool        // requests wait only for instances
	closing  bool        // new requests are refused
	ended    bool        // drained is closed
}

// An instance is a backend's instance with the schedulers' state.
type instance struct {
	backend backend.Instance
	ticket  *Ticket // nil when nothing limits it
	pauser  pauser
	turns   *turns        // nil when the backend takes one batch at a time
	batch   infer.Batch   // for a scheduler that has no batches of its own
	gone    chan struct{} // closed when it was removed and has no batch

	// How long its runs take. A scheduler without batches uses these only on the
	// goroutine that runs the instance, others with the pool's mutex held.
	runTime time.Duration // its recent run time
	long    bool          // its runs are long enough for a runner

	// Under the pool's mutex.
	most        int           // how many batches it may have, if it is the only one
	overlaps    bool          // it prepares one while a device computes another
	batches     int           // how many it has
	lastRun     time.Duration // how long its last batch took
	lastEnd     time.Time     // when that ended
	unavailable bool          // the backend cannot run now
	runner      *runner       // nil until requests have waited for it
	removed     bool
}

func newPool(record Recorder) pool {
	return pool{record: record, born: time.Now(), drained: make(chan struct{})}
}

// now returns the time with one reading of the clock: time.Now makes two.
func (p *pool) now() time.Time { return p.born.Add(time.Since(p.born)) }

// Add implements Scheduler.
func (p *pool) Add(instances ...backend.Instance) error {
	for _, in := range instances {
		i := &instance{backend: in, ticket: ticketOf(in), most: 1, gone: make(chan struct{})}
		if p.newPauser != nil {
			var err error
			if i.pauser, err = p.newPauser(); err != nil {
				return err
			}
			if a, ok := in.(backend.Ahead); ok {
				i.turns, i.most = newTurns(p.record), 1+a.Ahead()
				_, i.overlaps = in.(backend.Overlapping)
				i.overlaps = i.overlaps && i.most > 1
			}
		}
		watch(in, func(available bool) { p.setAvailable(i, available) })
		p.mu.Lock()
		p.all = append(p.all, i)
		p.markIdle(i)
		p.changed(p.now())
		p.mu.Unlock()
	}
	return nil
}

// Remove implements Scheduler.
func (p *pool) Remove(in backend.Instance) {
	p.mu.Lock()
	at := slices.IndexFunc(p.all, func(i *instance) bool { return i.backend == in })
	if at < 0 {
		p.mu.Unlock()
		return
	}
	i := p.all[at]
	p.all = slices.Delete(p.all, at, at+1)
	i.removed = true
	p.unlist(i)
	if i.batches == 0 {
		close(i.gone)
	}
	p.changed(p.now())
	p.mu.Unlock()
	<-i.gone
	i.close()
}

func (i *instance) close() {
	if i.pauser != nil {
		i.pauser.close()
	}
	if i.runner != nil {
		i.runner.stop()
	}
}

// markIdle records that an instance has no batch. It is idle unless it cannot
// run.
func (p *pool) markIdle(i *instance) {
	switch {
	case i.removed:
		close(i.gone)
	case !i.unavailable:
		p.idle = append(p.idle, i)
	}
}

// unlist removes an instance from the idle ones.
func (p *pool) unlist(i *instance) {
	if at := slices.Index(p.idle, i); at >= 0 {
		p.idle = slices.Delete(p.idle, at, at+1)
	}
}

// take returns the idle instance that runs next and asks for its resources: the
// one that became idle last, whose memory is still in the caches, or, with
// limits, the one whose turn it is. There must be one.
func (p *pool) take() *instance {
	next := len(p.idle) - 1
	if p.idle[next].ticket != nil {
		for at, i := range p.idle {
			if i.ticket.score() < p.idle[next].ticket.score() {
				next = at
			}
		}
	}
	i := p.idle[next]
	p.idle = slices.Delete(p.idle, next, next+1)
	i.batches++
	i.ticket.Ask()
	return i
}

// spare returns an instance that runs a batch and can prepare another, nil when
// there is none. With several instances the others run meanwhile.
func (p *pool) spare() *instance {
	if len(p.all) != 1 {
		return nil
	}
	i := p.all[0]
	if i.unavailable || i.batches == 0 || i.batches >= i.most {
		return nil
	}
	return i
}

// run executes and records a batch that has begun on an instance.
func (p *pool) run(i *instance, b *infer.Batch) error {
	err := execute(i.backend, b)
	if i.turns != nil {
		b.Turn.Await() // in case the backend failed before it did
	}
	b.Times.End = time.Now()
	if i.turns != nil {
		i.turns.end(b.Times.End)
	}
	p.record.Executed(b, err)
	return err
}

// execute calls the backend and turns a panic into an error, so that the
// scheduler does not lose the instance.
func execute(in backend.Instance, b *infer.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Wrap(status.Internal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "the model's execution broke; the server's log has the details")
		}
	}()
	return in.Run(b)
}

// free records that an instance has one batch less and gives it the next. The
// next batch asks for the resources before the last one gives them back.
func (p *pool) free(i *instance, now time.Time) {
	if i.batches--; i.batches == 0 {
		p.markIdle(i)
	}
	p.changed(now)
}

// enter counts n new requests.
func (p *pool) enter(n int) { p.inFlight += n }

// leave counts n answered requests.
func (p *pool) leave(n int) {
	p.inFlight -= n
	if p.closing && p.inFlight == 0 && !p.ended {
		p.ended = true
		close(p.drained)
	}
}

// Hurry implements Scheduler.
func (p *pool) Hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hurried {
		return
	}
	p.hurried = true
	p.changed(p.now())
}

// Drain refuses new requests from now on and returns at once. Queued requests
// wait only for instances.
func (p *pool) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return
	}
	p.hurried, p.closing = true, true
	p.changed(p.now())
	p.leave(0)
}

// Close implements Scheduler.
func (p *pool) Close() {
	p.Drain()
	<-p.drained
	p.mu.Lock()
	all := slices.Clone(p.all)
	p.mu.Unlock()
	for _, i := range all {
		i.close()
	}
}
