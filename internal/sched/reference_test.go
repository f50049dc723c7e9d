package sched

import (
	"slices"
	"time"

	"shoal/internal/infer"
)

// A refBatcher decides as the batcher did before policies were an interface: its
// functions are those of that batcher, without goroutines. It is what the
// decisions of today are held against.
type refBatcher struct {
	policy   Triton
	prefetch bool
	plain    bool
	match    matcher
	workers  int
	all      []*refWorker

	door    []*call // those who came while it was open
	isOpen  bool
	queue   queue
	open    *refBatch
	ready   []*refBatch
	given   []*refBatch
	idle    []*refWorker
	spare   []*refWorker
	view    []Candidate
	more    int
	armed   time.Time
	inside  int
	lastRun time.Duration
	closing bool

	now   time.Time
	due   time.Time
	begun func(*refBatch)
	gone  func(*infer.Request)
	leads []*refBatch // those whose leaders are about to start them
}

type refWorker struct{ lastRun time.Duration }

type refBatch struct {
	entries []entry
	rows    int
	sealed  bool
	reason  infer.Reason
	worker  *refWorker
	start   time.Time
}

func (b *refBatch) add(e entry) {
	b.entries = append(b.entries, e)
	b.rows += e.rows
}

func startReference(cfg BatcherConfig, instances, ahead int, begun func(*refBatch), gone func(*infer.Request)) *refBatcher {
	b := &refBatcher{
		policy: *cfg.Policy.(*Triton), match: newMatcher(cfg.Signature), workers: instances,
		prefetch: len(cfg.Levels) == 1 && cfg.Levels[0].plain(), begun: begun, gone: gone,
	}
	b.plain = b.prefetch && b.policy.plain() && !b.match.compares()
	b.queue.priorities, b.queue.defaultLevel = newPriorities(&cfg), cfg.DefaultLevel
	for _, p := range cfg.Levels {
		b.queue.levels = append(b.queue.levels, level{policy: p, refusal: errWithdrawn})
	}
	if instances > 1 {
		ahead = 0
	}
	for range instances + ahead {
		b.all = append(b.all, new(refWorker))
	}
	for _, w := range b.all {
		b.rest(w)
	}
	return b
}

func (b *refBatcher) submit(r *infer.Request, now time.Time) error {
	b.now, r.Queued = now, now
	c := &call{request: r, rows: max(r.Rows, 1)}
	if b.isOpen {
		b.door = append(b.door, c)
		b.settle()
		return nil
	}
	b.admit()
	l := &b.queue.levels[b.queue.level(r.Priority)]
	l.expire(now, b.reject)
	if l.full() {
		return l.refusal
	}
	e := c.entry()
	e.patience = l.policy.timeout(r.Timeout)
	l.push(e)
	b.inside++
	if b.queue.rows() >= b.more || e.patience != 0 {
		b.advance(now)
	}
	b.settle()
	return nil
}

func (b *refBatcher) reject(c *call) {
	b.inside--
	b.gone(c.request)
}

func (b *refBatcher) advance(now time.Time) {
	b.admit()
	b.form(now)
	b.isOpen = b.plain && len(b.idle)+len(b.spare) == 0 && !b.closing
}

func (b *refBatcher) admit() {
	for _, c := range b.door {
		b.queue.levels[0].push(c.entry())
		b.inside++
	}
	b.door = nil
}

func (b *refBatcher) form(now time.Time) {
	for i := range b.queue.levels {
		b.queue.levels[i].expire(now, b.reject)
	}
	b.more = 0
	for b.room() && !b.queue.empty() {
		if b.plain {
			b.fill()
			b.dispatch()
			continue
		}
		d := refDecide(&b.policy, b.lookAt(now))
		if b.closing && d.Take == 0 && !d.Close {
			d = Decision{Take: len(b.view), Reason: infer.ReasonIdle} // nobody else will come
		}
		if d.Take == 0 && !d.Close {
			b.more = b.queue.rows() + d.More
			if b.match.compares() {
				b.more = 0
			}
			b.arm(now.Add(d.Wait), now)
			break
		}
		b.apply(d)
		b.dispatch()
	}
	b.dispatch()
	if t := b.queue.nearest(); !t.IsZero() {
		b.arm(t, now)
	}
}

func (b *refBatcher) arm(t, now time.Time) {
	if b.inside == 0 {
		return
	}
	if b.armed.IsZero() || t.Before(b.armed) {
		b.armed, b.due = t, now.Add(max(t.Sub(now), 1))
	}
}

func (b *refBatcher) fill() {
	list := &b.queue.levels[0].live
	if b.open == nil {
		b.openBatch(infer.ReasonIdle)
	}
	bt := b.open
	for list.len() > 0 && (bt.rows == 0 || bt.rows+list.waiting()[0].rows <= b.policy.MaxRows) {
		bt.add(list.pop())
	}
	if list.len() > 0 || bt.rows >= b.policy.MaxRows {
		bt.reason = infer.ReasonFull
		b.open = nil
	}
}

func (b *refBatcher) openBatch(why infer.Reason) {
	b.open = &refBatch{reason: why}
	b.ready = append(b.ready, b.open)
}

func (b *refBatcher) room() bool {
	if b.prefetch {
		return len(b.ready)+b.taken() < 2*b.workers
	}
	return len(b.idle) > len(b.ready) || b.open != nil
}

func (b *refBatcher) taken() int {
	return max(0, len(b.all)-len(b.idle)-len(b.spare)-b.workers)
}

func (b *refBatcher) lookAt(now time.Time) View {
	v := View{Now: now}
	var first *infer.Request
	if b.open != nil {
		v.Open, first = b.open.rows, b.open.entries[0].request
	}
	b.view = b.view[:0]
	rows := v.Open
	for _, e := range b.queue.all {
		if first == nil {
			first = e.request
		}
		differs := b.match.differs(first, e.request)
		b.view = append(b.view, Candidate{Rows: e.rows, Queued: e.request.Queued, Expires: e.expires(), Differs: differs})
		rows += e.rows
		if differs || rows > b.policy.MaxRows {
			break
		}
	}
	v.Queue = b.view
	return v
}

func (b *refBatcher) apply(d Decision) {
	if d.Take > 0 {
		if b.open == nil {
			b.openBatch(d.Reason)
		}
		b.open.reason = d.Reason
		for range d.Take {
			b.open.add(b.queue.next().pop())
		}
	}
	if d.Close && b.open != nil {
		b.open.reason = d.Reason
		b.open.sealed = b.open.sealed || d.Seal
		b.open = nil
	}
}

func (b *refBatcher) dispatch() {
	for len(b.ready) > 0 && len(b.idle) > 0 {
		last := len(b.idle) - 1
		w := b.idle[last]
		b.idle = b.idle[:last]
		b.give(w)
	}
	for len(b.ready) > 0 && len(b.spare) > 0 && b.ahead(b.ready[0]) {
		last := len(b.spare) - 1
		w := b.spare[last]
		b.spare = b.spare[:last]
		b.give(w)
	}
}

func (b *refBatcher) ahead(bt *refBatch) bool {
	final := bt != b.open && (b.policy.Delay == 0 || bt.sealed || bt.rows >= b.policy.MaxRows)
	return final && b.lastRun > 0 && b.lastRun <= 50*time.Millisecond
}

func (b *refBatcher) give(w *refWorker) {
	bt := b.ready[0]
	b.ready = b.ready[1:]
	bt.worker = w
	if !b.prefetch && b.open == bt && b.policy.prefers(bt.rows) {
		b.open = nil
	}
	b.given = append(b.given, bt)
	b.leads = append(b.leads, bt)
}

func (b *refBatcher) rest(w *refWorker) {
	if len(b.all) == b.workers {
		b.idle = append(b.idle, w)
		return
	}
	b.spare = append(b.spare, w)
	if last := len(b.all) - 1; len(b.spare) > last {
		b.idle = append(b.idle, b.spare[last])
		b.spare = b.spare[:last]
	}
}

func (b *refBatcher) startBatch(bt *refBatch) {
	if len(b.door) > 0 {
		b.advance(b.now)
	}
	if b.open == bt {
		b.open = nil
	}
	if b.merge(bt, b.now) {
		b.advance(b.now)
	}
	b.given = slices.DeleteFunc(b.given, func(o *refBatch) bool { return o == bt })
	bt.start = b.now
	b.begun(bt)
}

func (b *refBatcher) merge(bt *refBatch, now time.Time) (merged bool) {
	if b.policy.Delay == 0 || b.policy.MaxRows == 1 || bt.sealed {
		return false
	}
	for len(b.ready) > 0 {
		next := b.ready[0]
		if next.sealed || bt.rows+next.rows > b.policy.MaxRows || now.Sub(next.entries[0].request.Queued) < b.policy.Delay ||
			b.match.differs(bt.entries[0].request, next.entries[0].request) {
			return merged
		}
		for _, e := range next.entries {
			bt.add(e)
		}
		b.drop(next)
		merged = true
	}
	return merged
}

func (b *refBatcher) drop(bt *refBatch) {
	if b.open == bt {
		b.open = nil
	}
	b.ready = slices.DeleteFunc(b.ready, func(o *refBatch) bool { return o == bt })
}

func (b *refBatcher) end(bt *refBatch, now time.Time) {
	b.now = now
	bt.worker.lastRun = now.Sub(bt.start)
	b.lastRun = bt.worker.lastRun
	b.rest(bt.worker)
	b.advance(now)
	b.inside -= len(bt.entries)
	b.settle()
}

func (b *refBatcher) withdraw(r *infer.Request, now time.Time) bool {
	b.now = now
	b.admit()
	gone := func(e entry) bool { return e.request == r }
	n := b.queue.prune(gone)
	prune := func(bt *refBatch, from int) {
		for i := len(bt.entries) - 1; i >= from; i-- {
			if gone(bt.entries[i]) {
				bt.rows -= bt.entries[i].rows
				bt.entries = slices.Delete(bt.entries, i, i+1)
				n++
			}
		}
	}
	for _, bt := range slices.Backward(slices.Clone(b.ready)) {
		prune(bt, 0)
		if len(bt.entries) == 0 {
			b.drop(bt)
		}
	}
	for _, bt := range b.given {
		prune(bt, 1)
	}
	if n > 0 {
		b.inside -= n
		b.advance(now)
	}
	b.settle()
	return n > 0
}

func (b *refBatcher) drain(now time.Time) {
	b.now, b.closing = now, true
	b.advance(now)
	b.settle()
}

func (b *refBatcher) next() time.Time { return b.due }

func (b *refBatcher) timeUp(now time.Time) {
	b.now = now
	if !b.due.IsZero() && !now.Before(b.due) {
		b.due, b.armed = time.Time{}, time.Time{}
		b.advance(now)
	}
	b.settle()
}

func (b *refBatcher) settle() {
	for len(b.leads) > 0 {
		bt := b.leads[0]
		b.leads = slices.Delete(b.leads, 0, 1)
		b.startBatch(bt)
	}
}

// refDecide is the rule for joining a batch as it was.
func refDecide(p *Triton, v View) Decision {
	var d Decision
	s := refScan(p, v, &d)
	late := p.Delay > 0 && s.taken > 0 && v.Now.Sub(s.oldest) >= p.Delay
	total := v.Open + s.rows
	switch {
	case s.best > 0 && !late:
		d.Take, d.Reason = s.best, infer.ReasonPreferred
		d.Close = d.Close || p.Delay == 0
		if p.largest() == p.MaxRows && (s.force || total == p.MaxRows) {
			d.Reason = infer.ReasonFull
		}
	case s.taken == 0:
		if d.Close {
			d.Reason = infer.ReasonFull
		}
	case s.force || total >= p.largest():
		d.Take, d.Close, d.Reason = s.taken, true, infer.ReasonFull
		if late {
			d.Reason = infer.ReasonDelay
		}
	case late:
		d.Take, d.Reason = s.taken, infer.ReasonDelay
	case p.Delay == 0:
		d.Take, d.Reason = s.taken, infer.ReasonIdle
	case v.Open > 0 && !p.prefers(v.Open):
		d.Take, d.Reason = s.taken, infer.ReasonDelay
	default:
		d.Wait = p.Delay - v.Now.Sub(s.oldest)
		if !s.expires.IsZero() {
			d.Wait = min(d.Wait, max(s.expires.Sub(v.Now), 0))
		}
		d.More = p.nextPreferred(total) - total
	}
	return d
}

func refScan(p *Triton, v View, d *Decision) scan {
	var s scan
	marked := false
	for i := range v.Queue {
		c := &v.Queue[i]
		if before := v.Open + s.rows; before > 0 {
			if before+c.Rows > p.largest() && !marked {
				marked, s.best, d.Close = true, s.taken, true
			}
			if before+c.Rows > p.MaxRows {
				s.force = true
				break
			}
			if c.Differs {
				s.force, d.Close, d.Seal = true, true, true
				break
			}
		}
		s.taken++
		s.rows += c.Rows
		if s.taken == 1 || c.Queued.Before(s.oldest) {
			s.oldest = c.Queued
		}
		if !c.Expires.IsZero() && (s.expires.IsZero() || c.Expires.Before(s.expires)) {
			s.expires = c.Expires
		}
		if p.prefers(v.Open + s.rows) {
			marked, s.best = true, s.taken
		}
	}
	return s
}
