package sched

import (
	"slices"
	"time"
)

// A QueuePolicy limits how long requests of one priority may wait and how many
// of them.
type QueuePolicy struct {
	// MaxSize is how many may wait; 0 is no limit.
	MaxSize int
	// Timeout is how long one may wait; 0 means no limit.
	Timeout time.Duration
	// Override lets a request shorten its own timeout.
	Override bool
	// Delay moves a request that timed out behind the others of its level,
	// where it may wait without limit, instead of refusing it.
	Delay bool
}

// timeout returns how long a request may wait under the policy; zero means no
// limit.
func (p *QueuePolicy) timeout(asked time.Duration) time.Duration {
	if p.Override && asked > 0 && asked < p.Timeout {
		return asked
	}
	return p.Timeout
}

// plain reports whether the policy has no limits, so that requests may leave
// the queue before an instance is idle.
func (p *QueuePolicy) plain() bool { return p.MaxSize == 0 && p.Timeout == 0 && !p.Override }

// A level holds the waiting requests of one priority: those in time, and after
// them those that timed out and were delayed.
type level struct {
	policy        QueuePolicy
	refusal       error // for a request without an id when the level is full: made once, since the server is then overloaded
	live, delayed fifo
	// nearest is not after any deadline in live; zero when none has one.
	nearest time.Time
}

func (l *level) full() bool {
	return l.policy.MaxSize > 0 && l.live.len()+l.delayed.len() >= l.policy.MaxSize
}

func (l *level) push(e entry) {
	l.live.push(e)
	if l.policy.Timeout > 0 {
		l.expect(e.expires())
	}
}

// expect records that a request in live expires at t.
func (l *level) expect(t time.Time) {
	if l.nearest.IsZero() || t.Before(l.nearest) {
		l.nearest = t
	}
}

// expire removes the requests whose timeout has passed: into the delayed list,
// or to reject.
func (l *level) expire(now time.Time, reject func(*call)) {
	if l.nearest.IsZero() || now.Before(l.nearest) {
		return
	}
	l.nearest = time.Time{}
	if l.policy.Override {
		l.live.prune(func(e entry) bool { return l.over(e, now, reject) })
		return
	}
	for l.live.len() > 0 && l.over(l.live.waiting()[0], now, reject) { // the rest came later and expire later
		l.live.pop()
	}
}

// over handles a request whose timeout has passed and reports whether it has.
func (l *level) over(e entry, now time.Time, reject func(*call)) bool {
	switch {
	case now.Before(e.expires()):
		l.expect(e.expires())
		return false
	case l.policy.Delay:
		e.patience = 0
		l.delayed.push(e)
	default:
		reject(e.call)
	}
	return true
}

// A queue holds the requests that are in no batch yet, by priority.
type queue struct {
	levels []level // the most urgent first; at least one
	priorities
	defaultLevel int
}

// priorities map a priority to its level.
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

func (q *queue) empty() bool { return q.next() == nil }

// len returns how many requests wait.
func (q *queue) len() int {
	n := 0
	for i := range q.levels {
		n += q.levels[i].live.len() + q.levels[i].delayed.len()
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

// all yields the waiting requests with their levels, in the order in which they
// are served.
func (q *queue) all(yield func(int, entry) bool) {
	for i := range q.levels {
		for _, list := range [...]*fifo{&q.levels[i].live, &q.levels[i].delayed} {
			for _, e := range list.waiting() {
				if !yield(i, e) {
					return
				}
			}
		}
	}
}

// next returns the list whose first request is served next, nil when none waits.
func (q *queue) next() *fifo {
	for i := range q.levels {
		if l := &q.levels[i]; l.live.len() > 0 {
			return &l.live
		} else if l.delayed.len() > 0 {
			return &l.delayed
		}
	}
	return nil
}

// prune removes the requests for which gone returns true, and returns how many.
func (q *queue) prune(gone func(entry) bool) int {
	n := 0
	for i := range q.levels {
		n += q.levels[i].live.prune(gone) + q.levels[i].delayed.prune(gone)
	}
	return n
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
