package grpcserver

import "sync"

// workers are goroutines that run calls. Those that have none wait for the next,
// the one that waits the shortest first: its stack has grown and is in the
// cache. A call that finds none gets a new one.
type workers struct {
	max int // how many may wait

	mu     sync.Mutex // protects the fields below
	idle   []*worker
	ended  bool
	active sync.WaitGroup
}

// A worker runs one call at a time.
type worker struct {
	next chan *call // buffered 1; nil ends the worker
	call *call      // the one that runs
	read func(any) error
}

// run has c run soon.
func (ws *workers) run(c *call) {
	ws.mu.Lock()
	if n := len(ws.idle); n > 0 {
		w := ws.idle[n-1]
		ws.idle = ws.idle[:n-1]
		ws.mu.Unlock()
		w.next <- c
		return
	}
	ws.active.Add(1)
	ws.mu.Unlock()
	w := &worker{next: make(chan *call, 1)}
	// Made once, as making it for each call would take an allocation.
	w.read = func(v any) error { return w.call.readOnly(v) }
	w.next <- c
	go ws.loop(w)
}

func (ws *workers) loop(w *worker) {
	defer ws.active.Done()
	for c := range w.next {
		if c == nil {
			return
		}
		w.call = c
		c.run(w)
		w.call = nil
		if !ws.wait(w) {
			return
		}
	}
}

// wait puts w among those that have no call, unless there are enough.
func (ws *workers) wait(w *worker) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ended || len(ws.idle) >= ws.max {
		return false
	}
	ws.idle = append(ws.idle, w)
	return true
}

// end lets the workers go and returns when all have. No call may be run after.
func (ws *workers) end() {
	ws.mu.Lock()
	ws.ended = true
	for _, w := range ws.idle {
		w.next <- nil
	}
	ws.idle = nil
	ws.mu.Unlock()
	ws.active.Wait()
}
