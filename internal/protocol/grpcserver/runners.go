package grpcserver

import "sync"

// runners are goroutines that run calls. Idle ones wait for the next call, the
// one that became idle last first: its stack has grown and is in the cache. A
// call that finds none gets a new one.
type runners struct {
	max int // how many may be idle

	mu     sync.Mutex // protects the fields below
	idle   []*runner
	ended  bool
	active sync.WaitGroup
}

// A runner runs one call at a time.
type runner struct {
	next chan *call // buffered 1; nil ends the runner
	call *call      // the current call
	read func(any) error
}

// run runs c soon.
func (rs *runners) run(c *call) {
	rs.mu.Lock()
	if n := len(rs.idle); n > 0 {
		w := rs.idle[n-1]
		rs.idle = rs.idle[:n-1]
		rs.mu.Unlock()
		w.next <- c
		return
	}
	rs.active.Add(1)
	rs.mu.Unlock()
	w := &runner{next: make(chan *call, 1)}
	// Made once: making it for each call would be an allocation.
	w.read = func(v any) error { return w.call.readOnly(v) }
	w.next <- c
	go rs.loop(w)
}

func (rs *runners) loop(w *runner) {
	defer rs.active.Done()
	for c := range w.next {
		if c == nil {
			return
		}
		w.call = c
		c.run(w)
		w.call = nil
		if !rs.wait(w) {
			return
		}
	}
}

// wait makes w idle, unless there are enough idle ones.
func (rs *runners) wait(w *runner) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended || len(rs.idle) >= rs.max {
		return false
	}
	rs.idle = append(rs.idle, w)
	return true
}

// end ends the runners and returns when all have ended. No call may be run
// after.
func (rs *runners) end() {
	rs.mu.Lock()
	rs.ended = true
	for _, w := range rs.idle {
		w.next <- nil
	}
	rs.idle = nil
	rs.mu.Unlock()
	rs.active.Wait()
}
