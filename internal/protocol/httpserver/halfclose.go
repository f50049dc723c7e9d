package httpserver

import (
	"sync"
	"sync/atomic"
	"time"
)

// A halfClose finds out whether a client that sends no more is gone. A client
// that has closed its connection and one that has only closed its sending
// direction, and waits for its answer, look the same until something is sent to
// them: the first answers with a reset, which the watcher sees. So a request
// whose client sends no more is kept, and after a moment the server sends an
// interim response, which HTTP/1.1 allows at any time and clients must ignore.
// In a stream of events it sends a comment.
//
// The zero value is for a connection whose client may still send.
type halfClose struct {
	conn *conn // set once

	closed  atomic.Bool                   // the client sends no more
	waiting atomic.Bool                   // a request has arrived completely, and nothing of its answer was sent
	events  atomic.Pointer[chan struct{}] // woken to send a comment within a stream of events

	mu sync.Mutex // held while the interim response is sent
}

// interim is the interim response.
const interim = "HTTP/1.1 100 Continue\r\n\r\n"

// close records that the client sends no more.
func (h *halfClose) close() {
	h.closed.Store(true)
	if h.waiting.Load() {
		h.schedule()
	}
	h.wake()
}

// stream records that the answer is a stream of events; wake is woken when it
// must send a comment.
func (h *halfClose) stream(wake *chan struct{}) {
	h.events.Store(wake)
	if h.closed.Load() {
		h.wake()
	}
}

func (h *halfClose) wake() {
	wake := h.events.Load()
	if wake == nil {
		return
	}
	select {
	case *wake <- struct{}{}:
	default: // it was woken, or its stream is over
	}
}

// wait records that a request has arrived completely.
func (h *halfClose) wait() {
	h.waiting.Store(true)
	if h.closed.Load() {
		h.schedule()
	}
}

// answer records that the answer begins. It waits for an interim response that
// is being sent.
func (h *halfClose) answer() {
	if !h.waiting.Load() {
		return
	}
	h.waiting.Store(false)
	if h.closed.Load() {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
}

func (h *halfClose) schedule() { time.AfterFunc(h.conn.server.opt.ProbeAfter, h.probe) }

// probe sends the interim response if the client still waits.
func (h *halfClose) probe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.waiting.Load() {
		return
	}
	nc := h.conn.Conn
	// The deadline of the last answer has passed. Fails only on a closed
	// connection.
	_ = nc.SetWriteDeadline(time.Now().Add(h.conn.server.opt.StallTimeout))
	if _, err := nc.Write([]byte(interim)); err != nil {
		h.conn.ctx.Leave()
	}
}
