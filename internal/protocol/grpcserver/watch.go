package grpcserver

import (
	"fmt"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/internal/protocol/h2"
	"shoal/internal/reject"
)

// A watch tracks how a connection moves. The server's mutex looking protects
// it: each listener has a goroutine that checks connections.
type watch struct {
	header  uint64    // what the reader waited for at the last check
	since   time.Time // when that was first seen
	payload pace      // of a frame that is not a header
	window  pace      // of what waits for the connection's window
	socket  pace      // of what is being written
}

// callPaces are made for a call that was found waiting.
type callPaces struct{ receive, send pace }

// watch checks the connections periodically until done is closed. One goroutine
// does it for all: a timer for each message would cost every call.
func (s *Server) watch(done <-chan struct{}) {
	every := min(s.opt.HeaderTimeout, s.opt.MessageTimeout) / 8
	tick := time.NewTicker(min(max(every, 10*time.Millisecond), lookEvery))
	defer tick.Stop()
	var conns []*conn
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		for c := range s.conns {
			conns = append(conns, c)
		}
		s.mu.Unlock()
		s.looking.Lock()
		now := time.Now()
		for _, c := range conns {
			c.look(now)
		}
		s.looking.Unlock()
		clear(conns)
		conns = conns[:0]
	}
}

// look ends the connection, or calls on it, when the client is too slow.
func (c *conn) look(now time.Time) {
	waiting := c.in.waiting.Load()
	if text := c.slowReader(now, waiting); text != "" {
		c.closedBy(reject.ReadTimeout, text)
		c.abort(connError{http2.ErrCodeEnhanceYourCalm, text})
		return
	}
	c.mu.Lock()
	if c.slowWriterLocked(now) {
		c.mu.Unlock()
		text := c.late("the client takes its answers")
		c.closedBy(reject.WriteTimeout, text)
		c.abort(connError{http2.ErrCodeEnhanceYourCalm, text})
		return
	}
	// While the reader does not wait for the client, the client waits for us.
	var senders, takers []*call
	if waiting != readerBusy {
		senders = c.slowLocked(c.receiving.first, listReceive, now)
	}
	takers = c.slowLocked(c.starved.first, listSend, now)
	c.mu.Unlock()
	for _, s := range senders {
		c.breakOff(s, c.late("the client sends the message"))
	}
	for _, s := range takers {
		c.breakOff(s, c.late("the client takes the answer"))
	}
}

// late returns the text about what is too slow.
func (c *conn) late(what string) string {
	return fmt.Sprintf("%s too slowly: it paused for more than %v, or stayed below %d bytes per second (--grpc-message-timeout-secs)",
		what, c.server.opt.MessageTimeout, minRate)
}

// slowReader returns what is too slow of a frame that has begun. A header must
// arrive in time; other frames must keep moving.
func (c *conn) slowReader(now time.Time, waiting uint64) string {
	w, opt := &c.watch, &c.server.opt
	switch waiting & readerMask {
	case readerHeader:
		if w.header != waiting {
			w.header, w.since = waiting, now
		} else if now.Sub(w.since) > opt.HeaderTimeout {
			return fmt.Sprintf("a header did not arrive within %v (--grpc-header-timeout-secs)", opt.HeaderTimeout)
		}
	case readerPayload:
		if w.payload.slow(now, c.in.total.Load(), opt.MessageTimeout) {
			return c.late("the client sends a frame")
		}
		return ""
	}
	w.payload.stop()
	return ""
}

// slowWriterLocked reports whether the client has not read what waits for the
// socket, or for the connection's window.
func (c *conn) slowWriterLocked(now time.Time) bool {
	w, stall := &c.watch, c.server.opt.MessageTimeout
	slow := false
	if c.writing {
		slow = w.socket.slow(now, c.written.Load(), stall)
	} else {
		w.socket.stop()
	}
	if c.waiting.n > 0 && c.outWindow <= 0 {
		slow = w.window.slow(now, c.sent, stall) || slow
	} else {
		w.window.stop()
	}
	return slow && c.state < connLingering
}

// slowLocked returns the calls in a list that are too slow.
func (c *conn) slowLocked(first *call, kind int, now time.Time) []*call {
	var list []*call
	stall := c.server.opt.MessageTimeout
	for s := first; s != nil; s = s.links[kind].next {
		if s.paces == nil {
			s.paces = new(callPaces)
		}
		p, moved := &s.paces.send, s.sent
		if kind == listReceive {
			p, moved = &s.paces.receive, s.arrived
		}
		if kind == listReceive && s.inWindow <= 0 {
			p.stop() // it may not send
		} else if p.slow(now, moved, stall) {
			list = append(list, s)
		}
	}
	return list
}

// followLocked watches the call's message while it is incomplete. Only a stream
// may pause between messages. The reader calls it.
func (c *conn) followLocked(s *call) {
	begun := s.assembly.prefixN > 0
	if s.inbox == nil {
		begun = !s.started
	}
	begun = begun && s.assembly.fault == nil && !s.remoteClosed && !s.ended.Load()
	switch listed := s.links[listReceive].list != nil; {
	case begun && !listed:
		c.receiving.push(s)
	case !begun && listed:
		s.unlist(listReceive)
	case listed:
		return
	}
	if s.paces != nil {
		s.paces.receive.stop()
	}
}

// breakOff ends a call whose client is too slow.
func (c *conn) breakOff(s *call, text string) {
	if s.endWith(status.New(codes.DeadlineExceeded, text)) {
		c.rejected(reject.Timeout, text)
	}
}

// endWith ends a call before its handler has, and reports whether it had not
// ended.
func (c *call) endWith(st *status.Status) bool {
	n := c.conn
	n.mu.Lock()
	if c.ended.Load() {
		n.mu.Unlock()
		return false
	}
	if c.sending {
		n.out.settle(h2.AppendNumber(n.out.buf, http2.FrameRSTStream, c.id, uint32(http2.ErrCodeCancel)))
		n.removeLocked(c)
	} else {
		running := c.running
		n.finishLocked(c, st)
		if running { // it runs on without a stream
			c.running, c.cutOff = true, true
			n.cutOff++
		}
	}
	n.kickLocked()
	n.mu.Unlock()
	c.cut()
	return true
}
