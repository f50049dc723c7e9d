package sim

import "time"

// Cores are processors that batches share with what callers and the server compute for
// each request, as where a client runs on the server's machine. A thread that has a core
// keeps it for up to a slice while others wait for one.
type Cores struct {
	Number int // 0 for as many as there are threads
	Slice  time.Duration
	// Threads is how many threads the callers have together, and how many the server has
	// for requests. Each batch has its own.
	Threads int
	// Between an answer and the next request a caller computes for its turnaround and the
	// server for Server. Answer is what the server computes for the answers of a batch.
	Server, Answer time.Duration
}

// A task is what a thread computes: a batch, or something for a request.
type task struct {
	event
	left  time.Duration
	of    *threads      // who do it; nil for a batch
	until time.Duration // the end of the thread's slice
}

// threads are those of the callers, or of the server.
type threads struct {
	waiting []*task
	busy    int
}

// processors are the cores, and who computes on them or waits for one.
type processors struct {
	Cores
	on, ready      []*task // with a core and without, the first in the order in which they get one
	client, server threads
	now            time.Duration
}

// begin has a thread of its own do a task.
func (p *processors) begin(now time.Duration, t *task) {
	p.pass(now)
	p.ready = append(p.ready, t)
	p.assign()
}

// do has one of some threads do a task, or has it wait for one.
func (p *processors) do(now time.Duration, of *threads, e event, work time.Duration) {
	t := &task{event: e, left: max(work, 1), of: of}
	if of.busy == p.Threads {
		of.waiting = append(of.waiting, t)
		return
	}
	of.busy++
	p.begin(now, t)
}

// pass has the threads compute until now.
func (p *processors) pass(now time.Duration) {
	for _, t := range p.on {
		t.left -= now - p.now
	}
	p.now = now
}

// assign gives idle cores to threads that wait for one.
func (p *processors) assign() {
	for len(p.on) < p.Number && len(p.ready) > 0 {
		t := p.ready[0]
		p.ready = p.ready[1:]
		t.until = p.now + p.Slice
		p.on = append(p.on, t)
	}
}

// next returns when a thread ends its task or loses its core, if one computes.
func (p *processors) next() (at time.Duration, ok bool) {
	for _, t := range p.on {
		end := p.now + t.left
		if len(p.ready) > 0 {
			end = min(end, max(t.until, p.now))
		}
		if !ok || end < at {
			at, ok = end, true
		}
	}
	return at, ok
}

// step does what next announced, and returns the task that ended, nil if none did.
func (p *processors) step(now time.Duration) *task {
	p.pass(now)
	for i, t := range p.on {
		ended := t.left <= 0
		switch {
		case ended && t.of != nil && len(t.of.waiting) > 0: // its thread keeps the core
			next := t.of.waiting[0]
			t.of.waiting = t.of.waiting[1:]
			next.until = t.until
			p.on[i] = next
			return t
		case ended && t.of != nil:
			t.of.busy--
		case !ended && (t.until > now || len(p.ready) == 0):
			continue
		}
		p.on = append(p.on[:i], p.on[i+1:]...)
		if !ended {
			p.ready = append(p.ready, t)
			t = nil
		}
		p.assign()
		return t
	}
	return nil
}
