package sched

import (
	"context"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// A Batcher gathers requests into batches and runs them on a model's instances,
// as its policy decides.
//
// It has no goroutine of its own. The goroutine of a batch's first request
// leads it: it runs the instance, answers the other requests and, when the next
// batch is due, makes the first request of that one its leader. Every request
// is woken at most once, and a lone request never changes goroutine at all.
//
// Batches that wait for an instance stand in ready, as in Triton: the youngest
// stays open, and grows, until it is full or an instance starts it.
type Batcher struct {
	name     string
	policy   Policy
	ordered  bool
	gathers  bool // a leader looks out for requests that are about to arrive
	patience int  // for so many steps that bring nothing
	prefetch bool
	plain    bool // nothing is to be decided until a batch is full
	match    matcher
	record   Recorder
	place    infer.Place // for callers that leave
	calls    sync.Pool
	batches  sync.Pool
	born     time.Time
	timer    timer // nil when nothing depends on time
	workers  int
	all      []*worker // more than there are instances if one takes batches ahead
	door     door      // with plain, for calls that find all instances busy

	mu       sync.Mutex // protects the fields below
	queue    queue
	open     *batch   // the batch that takes more, perhaps already given a worker
	ready    []*batch // batches without a worker, the oldest first
	given    []*batch // batches with a worker that have not started
	arriving *call    // holds the lock to enter, so that it need not be signalled to lead
	order    []*batch // with ordered: batches not delivered yet, the oldest first
	line     line     // with ordered: calls of those that were
	idle     []*worker
	spare    []*worker // to get full batches ready while their instance runs another
	view     []Candidate
	more     int       // look again when so many rows wait; 0 at any arrival
	armed    time.Time // when the timer will go off; zero when it will not
	hold     int       // until so many wait, none is taken
	inside   int       // calls that have no answer yet
	crowd    int       // how many were inside at once of late
	lastRun  time.Duration
	closing  bool
	drained  chan struct{} // closed when closing and nothing is inside
}

// StartBatcher returns a batcher over the instances, which stay the caller's
// and must outlive it.
func StartBatcher(cfg BatcherConfig, instances []backend.Instance, record Recorder) (*Batcher, error) {
	return startBatcher(cfg, instances, record, newTimer, newPauser)
}

func startBatcher(cfg BatcherConfig, instances []backend.Instance, record Recorder, newTimer func(func()) (timer, error), newPauser func() (pauser, error)) (*Batcher, error) {
	b := &Batcher{
		name: cfg.Signature.Name, policy: cfg.Policy, ordered: cfg.PreserveOrder, gathers: !cfg.NoGather, match: newMatcher(cfg.Signature),
		record: record, born: time.Now(), workers: len(instances), drained: make(chan struct{}),
		prefetch: len(cfg.Levels) == 1 && cfg.Levels[0].plain(), patience: 1,
	}
	if len(instances) == 1 {
		b.patience = gatherMisses
	}
	b.plain = b.prefetch && cfg.Policy.plain() && !b.match.compares()
	b.door.newest.Store(shut)
	b.queue.priorities, b.queue.defaultLevel, b.hold = newPriorities(&cfg), cfg.DefaultLevel, cfg.Hold
	for _, p := range cfg.Levels {
		b.queue.levels = append(b.queue.levels, level{policy: p, refusal: b.fullQueue(noID, &p)})
	}
	b.place.Withdraw = b.withdrawAll
	b.calls.New = func() any { return &call{signals: make(chan bool, 1)} }
	b.batches.New = func() any { return new(batch) }
	for _, in := range instances {
		if err := b.employ(in, newPauser); err != nil {
			return nil, err
		}
	}
	// With several instances the others run while one gets its inputs. One that is
	// limited would have to hold its resources for each batch that it is given.
	if in, ok := instances[0].(backend.Ahead); ok && len(instances) == 1 {
		for range in.Ahead() {
			if err := b.employ(instances[0], newPauser); err != nil {
				return nil, err
			}
		}
		l := newLane(record)
		for _, w := range b.all {
			w.lane = l
		}
	}
	for _, w := range b.all {
		b.rest(w)
	}
	if b.timed() {
		var err error
		if b.timer, err = newTimer(b.timeUp); err != nil {
			return nil, err
		}
	}
	for _, w := range b.all {
		watch(w.instance, func(available bool) { b.offer(w, available) })
	}
	return b, nil
}

// now returns the time, from one reading of the clock: time.Now makes two.
func (b *Batcher) now() time.Time { return b.born.Add(time.Since(b.born)) }

// timed reports whether anything that the batcher does depends on time.
func (b *Batcher) timed() bool {
	for i := range b.queue.levels {
		if b.queue.levels[i].policy.Timeout > 0 {
			return true
		}
	}
	return b.policy.Delay > 0
}

// Do implements Scheduler.
func (b *Batcher) Do(ctx context.Context, r *infer.Request) error {
	c := b.calls.Get().(*call)
	now := b.now()
	r.Queued = now
	c.request, c.rows = r, max(r.Rows, 1)
	c.caller, _ = ctx.(*infer.Caller)
	leads := false
	// The way through the door is short, and so is the stack of whoever waits
	// behind it: other cores have to fetch it.
	if !b.door.enter(c) {
		var err error
		if leads, err = b.enter(c, now); err != nil {
			r.Queued = time.Time{}
			b.release(c)
			return err
		}
	}
	entered(r)
	for !leads || !b.lead(c) {
		if c.caller == nil || !c.caller.WaitsAt(&b.place) {
			b.await(ctx, c)
			break
		}
		<-c.signals
		if leads = c.leads != nil; !leads {
			break
		}
	}
	if b.ordered {
		b.mu.Lock()
		b.line.leave(c)
		b.mu.Unlock()
	}
	err := c.result()
	b.release(c)
	return err
}

// release keeps a call for another request.
func (b *Batcher) release(c *call) {
	c.next, c.request, c.caller = nil, nil, nil
	b.calls.Put(c)
}

// enter puts the call into the queue and does what has become due. It reports
// whether the call leads a batch already.
func (b *Batcher) enter(c *call, now time.Time) (leads bool, err error) {
	r := c.request
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return false, stopping(r)
	}
	b.admit() // those that came before it
	l := &b.queue.levels[b.queue.level(r.Priority)]
	l.expire(now, b.reject)
	if l.full() {
		if r.ID == "" {
			return false, l.refusal
		}
		return false, b.fullQueue(r.ID, &l.policy)
	}
	e := c.entry()
	e.patience = l.policy.timeout(r.Timeout)
	l.push(e)
	b.count(1)
	if b.queue.rows() < b.more && e.patience == 0 {
		return false, nil // the last decision still holds
	}
	b.arriving = c
	b.advance(now)
	b.arriving = nil
	return c.leads != nil, nil
}

// count notes that n requests came in.
func (b *Batcher) count(n int) {
	b.inside += n
	b.crowd = max(b.crowd, b.inside)
}

// admit takes those into the queue who came through the door.
func (b *Batcher) admit() {
	b.count(b.queue.levels[0].live.pushLine(b.door.take()))
}

// await returns when the call has its answer, or has left the queue with the end
// of ctx. It leads the call's batch when it is told to.
func (b *Batcher) await(ctx context.Context, c *call) {
	for {
		select {
		case <-c.signals:
		case <-ctx.Done():
			if b.withdraw(c) {
				c.leave(cancelled(ctx))
				return
			}
			<-c.signals // it runs, or is about to
		}
		if c.leads == nil || b.lead(c) {
			return
		}
		ctx = context.Background() // only the order of answers is waited for
	}
}

// left counts calls that have their answer.
func (b *Batcher) left(n int) {
	b.inside -= n
	if b.closing && b.inside == 0 {
		close(b.drained)
	}
}

// reject answers a call whose time in the queue is over.
func (b *Batcher) reject(c *call) {
	c.end(ErrTimeout)
	b.left(1)
}

// Pending returns how many requests wait for an instance.
func (b *Batcher) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admit()
	n := b.queue.len()
	for _, bt := range b.ready {
		n += len(bt.entries)
	}
	return n
}

// Drain implements Scheduler.
func (b *Batcher) Drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return
	}
	b.closing = true
	b.admit() // they are inside, too
	if b.inside == 0 {
		close(b.drained)
	}
	b.advance(b.now())
}

// Close implements Scheduler.
func (b *Batcher) Close() {
	b.Drain()
	<-b.drained
	for _, w := range b.all {
		w.pauser.close()
	}
	if b.timer != nil {
		b.timer.close()
	}
}
