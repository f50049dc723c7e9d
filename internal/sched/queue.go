package sched

import (
	"slices"
	"time"

	"shoal/internal/infer"
)

// A call is a request on its way through the batcher. It is in one of the
// queue's lists, in a batch, or in neither once it has its answer.
//
// What a leader touches of others' calls comes first, in one line of the cache.
type call struct {
	next    *call
	batch   *batch
	err     error
	signals chan signal // buffered 1: at most one is under way
	entry               // what the batcher was given

	prev    *call
	after   *call // the next in the line
	list    *callList
	level   int
	waiting infer.Waiting
}

func newCall(b *Batcher) *call {
	c := &call{signals: make(chan signal, 1)}
	c.waiting.Withdraw = func() {
		if b.withdraw(c) {
			c.err = errWithdrawn
			c.signals <- signalDone
		}
	}
	return c
}

// A signal tells the goroutine that waits for a call what to do.
type signal uint8

const (
	signalDone signal = iota // the answer is there
	signalLead               // run the batch that the call is the first of
)

// A callList is a first-in first-out list of calls.
type callList struct {
	head, tail *call
	n, rows    int
}

func (l *callList) push(c *call) {
	c.list, c.prev, c.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.next = c
	} else {
		l.head = c
	}
	l.tail = c
	l.n++
	l.rows += c.rows
}

func (l *callList) remove(c *call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.head = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.tail = c.prev
	}
	c.list, c.prev, c.next = nil, nil, nil
	l.n--
	l.rows -= c.rows
}

// A QueuePolicy says how long requests of one priority may wait and how many of
// them.
type QueuePolicy struct {
	// MaxSize is how many may wait; 0 is no limit.
	MaxSize int
	// Timeout is how long one may wait; 0 is for ever.
	Timeout time.Duration
	// Override lets a request shorten its own timeout.
	Override bool
	// Delay moves a request that timed out behind the others of its level,
	// where it may wait for ever, rather than refusing it.
	Delay bool
}

// timeout returns how long a request may wait under the policy; zero for ever.
func (p *QueuePolicy) timeout(asked time.Duration) time.Duration {
	if p.Override && asked > 0 && asked < p.Timeout {
		return asked
	}
	return p.Timeout
}

// plain says that the policy asks for nothing, so that requests may leave the
// queue before an instance is idle.
func (p *QueuePolicy) plain() bool { return p.MaxSize == 0 && p.Timeout == 0 && !p.Override }

// A level holds the waiting requests of one priority: those in time, and after
// them those that timed out and were delayed.
type level struct {
	policy        QueuePolicy
	refusal       error // of a request without an id when the level is full: made once, for it is needed when time is short
	live, delayed callList
	// nearest is not after any deadline in live; zero when none has one.
	nearest time.Time
}

func (l *level) full() bool {
	return l.policy.MaxSize > 0 && l.live.n+l.delayed.n >= l.policy.MaxSize
}

func (l *level) push(c *call) {
	l.live.push(c)
	if !c.expires.IsZero() && (l.nearest.IsZero() || c.expires.Before(l.nearest)) {
		l.nearest = c.expires
	}
}

// expire takes the requests out whose time is over: into the delayed list, or
// to reject.
func (l *level) expire(now time.Time, reject func(*call)) {
	if l.nearest.IsZero() || now.Before(l.nearest) {
		return
	}
	l.nearest = time.Time{}
	for c := l.live.head; c != nil; {
		next := c.next
		switch {
		case c.expires.IsZero():
		case now.Before(c.expires):
			if l.nearest.IsZero() || c.expires.Before(l.nearest) {
				l.nearest = c.expires
			}
			if !l.policy.Override {
				return // the rest came later and expire later
			}
		default:
			l.live.remove(c)
			if l.policy.Delay {
				c.expires = time.Time{}
				l.delayed.push(c)
			} else {
				reject(c)
			}
		}
		c = next
	}
}

// A queue holds the requests that are in no batch yet, by priority.
type queue struct {
	levels []level // the most urgent first; at least one
	priorities
	defaultLevel int
}

// priorities say which level a priority belongs to.
type priorities struct {
	first []uint64 // of each level
	last  uint64   // of all
}

func newPriorities(cfg *BatcherConfig) priorities {
	p := priorities{cfg.Priorities, cfg.MaxPriority}
	if p.first == nil {
		p.last = uint64(len(cfg.Levels))
		for i := range p.last {
			p.first = append(p.first, i+1)
		}
	}
	return p
}

// level returns the level of a request's priority, where 1 is the first.
func (q *queue) level(priority uint64) int {
	if len(q.levels) == 1 || priority == 0 || priority > q.last {
		return q.defaultLevel
	}
	i, found := slices.BinarySearch(q.first, priority)
	if !found {
		i-- // between two
	}
	return i
}

func (q *queue) empty() bool {
	for i := range q.levels {
		if q.levels[i].live.n+q.levels[i].delayed.n > 0 {
			return false
		}
	}
	return true
}

// len returns how many requests wait.
func (q *queue) len() int {
	n := 0
	for i := range q.levels {
		n += q.levels[i].live.n + q.levels[i].delayed.n
	}
	return n
}

// rows returns how many rows wait.
func (q *queue) rows() int {
	n := 0
	for i := range q.levels {
		n += q.levels[i].live.rows + q.levels[i].delayed.rows
	}
	return n
}

// all yields the waiting requests in the order in which they are served.
func (q *queue) all(yield func(*call) bool) {
	for i := range q.levels {
		for _, list := range [...]*callList{&q.levels[i].live, &q.levels[i].delayed} {
			for c := list.head; c != nil; {
				next := c.next // the consumer may take c out
				if !yield(c) {
					return
				}
				c = next
			}
		}
	}
}

// nearest returns the earliest deadline of any waiting request, zero when none
// has one. It may be too early, never too late.
func (q *queue) nearest() time.Time {
	var t time.Time
	for i := range q.levels {
		if n := q.levels[i].nearest; !n.IsZero() && (t.IsZero() || n.Before(t)) {
			t = n
		}
	}
	return t
}
