package sched

import (
	"sync"
	"time"
)

// A former forms batches of requests and gives them to the instances of its
// pool, as its policy decides. It has no goroutine and no clock: a Batcher
// drives it with real requests, a Virtual in virtual time, both with the pool's
// mutex held.
//
// Batches that wait for an instance are in ready, as in Triton: the youngest
// stays open, and grows, until it is full or an instance starts it.
type former struct {
	pool
	name       string
	policy     Policy
	maxRows    int
	ordered    bool
	learns     bool       // the policy uses the batches that run
	keepQueued bool       // requests may time out or be overtaken
	mixed      bool       // they may, or their inputs may differ
	plain      bool       // there is nothing to decide while every instance is busy
	cores      func() int // how many instances may run at a time; nil for no limit
	match      matcher
	batches    sync.Pool
	inbox      inbox // with plain, for calls that find all instances busy
	timer      timer // nil until something depends on time
	makeTimer  func() timer
	lead       func(*batch) // called when a batch gets an instance: its leader decides when to start it
	wake       func(*batch) // wakes a batch's leader before its wait is over
	unpark     func(*batch) // finds a leader for a batch that was parked and starts
	end        func(*call)  // ends a call whose queue timeout has passed

	queue       queue
	open        *batch   // the batch that accepts more requests; it may already have an instance
	ready       []*batch // batches without an instance, the oldest first
	given       []*batch // batches with an instance that have not started
	parked      []*batch // those of given that have no leader yet
	order       []*batch // with ordered: undelivered batches, the oldest first
	running     []Running
	situation   View // the policy's view
	candidates  []Candidate
	recheckRows int           // decide again when this many rows wait; 0 at any arrival
	firstWait   time.Duration // how long the first of recheckRows waits for the others; 0 if it need not
	armed       time.Time     // when the timer will fire; zero when it will not
	minQueued   int           // none is taken until this many wait
	peak        peak          // the recent maximum of requests in flight
	waking      int           // batches whose leaders are woken at a number of rows
	mostBusy    int           // what cores returned last, at least one
	untilCores  int           // how many batches start before it is asked again
	brief       bool          // runs are so short that few instances should run at a time
}

func (f *former) init(cfg *BatcherConfig, record Recorder) {
	f.pool = newPool(record)
	f.changed = f.advance
	f.name, f.policy, f.ordered, f.match = cfg.Signature.Name, cfg.Policy, cfg.PreserveOrder, newMatcher(cfg.Signature)
	f.maxRows, f.cores = max(1, cfg.Signature.MaxBatch), cfg.Cores
	f.countCores()
	f.keepQueued = len(cfg.Levels) > 1 || !cfg.Levels[0].plain()
	f.mixed = f.keepQueued || f.match.compares()
	f.learns = f.policy.Needs().Runs
	f.situation.Mixed, f.situation.KeepQueued = f.mixed, f.keepQueued
	f.plain = !f.mixed && !f.policy.Needs().WhileBusy
	f.batches.New = func() any { return new(batch) }
	f.inbox.newest.Store(closedInbox)
	f.queue.priorities, f.queue.defaultLevel, f.minQueued = newPriorities(cfg), cfg.DefaultLevel, cfg.MinQueued
	for _, p := range cfg.Levels {
		f.queue.levels = append(f.queue.levels, level{policy: p, refusal: f.fullQueue(noID, &p)})
	}
}

// timed reports whether anything depends on time.
func (f *former) timed() bool {
	for i := range f.queue.levels {
		if f.queue.levels[i].policy.Timeout > 0 {
			return true
		}
	}
	return f.policy.Needs().Timer
}

// push puts a call into the queue and does what has become due.
func (f *former) push(c *call, now time.Time) error {
	f.admit() // those that came before it
	l := &f.queue.levels[f.queue.level(c.request.Priority)]
	l.expire(now, f.reject)
	if l.full() {
		if c.request.ID == "" {
			return l.refusal
		}
		return f.fullQueue(c.request.ID, &l.policy)
	}
	e := c.entry()
	e.patience = l.policy.timeout(c.request.Timeout)
	l.push(e)
	f.count(1)
	if f.queue.rows() >= f.recheckRows || e.patience > 0 { // otherwise the last decision still holds
		f.advance(now)
	} else if f.firstWait > 0 && f.queue.len() == 1 {
		f.armWait(now.Add(f.firstWait), f.firstWait, now)
	}
	return nil
}

// admit moves the calls of the inbox into the queue.
func (f *former) admit() {
	f.count(f.queue.levels[0].live.pushList(f.inbox.take()))
}

// count counts n new requests.
func (f *former) count(n int) {
	f.enter(n)
	f.peak.see(f.inFlight)
}

// reject ends a call whose queue timeout has passed.
func (f *former) reject(c *call) {
	f.end(c)
	f.leave(1)
}

// prune removes the calls that have not started and for which gone returns
// true, and returns how many.
func (f *former) prune(gone func(entry) bool, now time.Time) int {
	f.admit()
	n := f.queue.prune(gone)
	for i := len(f.ready) - 1; i >= 0; i-- {
		bt := f.ready[i]
		n += bt.prune(0, gone)
		if len(bt.entries) == 0 {
			f.drop(bt)
		}
	}
	for _, bt := range f.given {
		n += bt.prune(1, gone) // its leader is about to run it
	}
	if n > 0 {
		f.leave(n)
		f.advance(now)
	}
	return n
}

// drop removes a batch that lost all its requests before it had an instance.
func (f *former) drop(bt *batch) {
	if f.open == bt {
		f.open = nil
	}
	f.ready = without(f.ready, bt)
	f.order = without(f.order, bt)
	f.recycle(bt)
}

// recycle keeps a batch for reuse.
func (f *former) recycle(bt *batch) {
	bt.reset()
	f.batches.Put(bt)
}

// pending returns how many requests wait for an instance.
func (f *former) pending() int {
	f.admit()
	n := f.queue.len()
	for _, bt := range f.ready {
		n += len(bt.entries)
	}
	return n
}
