package grpcserver

import (
	"shoal/internal/protocol/h2"
)

// A call that has something to send and may not yet waits in one of two lists:
// in starved while the window of its own stream is closed, otherwise in
// waiting, for the connection's window or for room in the output. Those in
// waiting are served in order, one at a time, so that a frame that opens a
// window wakes no more calls than it can serve.

// turnSize is how much a call sends before it is the next call's turn.
const turnSize = 64 << 10

// windowLocked returns how much the client lets us send for a call. It may be
// negative. A stream's window is stored as the difference to the client's size
// for all streams, which can then change without touching each.
func (c *conn) windowLocked(s *call) int64 { return c.settings.window + s.outWindow }

// openLocked reports whether the connection can send more.
func (c *conn) openLocked() bool { return c.outWindow > 0 && c.out.size < maxPending }

// mustWaitLocked reports whether a call may not send now.
func (c *conn) mustWaitLocked(s *call) bool {
	if !c.openLocked() || c.windowLocked(s) <= 0 {
		return true
	}
	return c.turn != s && (c.turn != nil || c.waiting.n > 0)
}

// awaitLocked waits for a window, for room in the output, or for the end of the
// call.
func (c *conn) awaitLocked(s *call) {
	c.passLocked(s)
	c.flushLocked() // may make room
	if s.ended.Load() {
		return
	}
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	c.enlistLocked(s)
	c.nextLocked()
	c.mu.Unlock()
	<-s.wake
	c.mu.Lock()
	s.unlist(listSend)
}

// enlistLocked puts a waiting call into its list.
func (c *conn) enlistLocked(s *call) {
	if c.windowLocked(s) > 0 {
		c.waiting.push(s)
	} else {
		c.starved.push(s)
	}
}

// passLocked ends a call's turn.
func (c *conn) passLocked(s *call) {
	if c.turn == s {
		c.turn = nil
		c.nextLocked()
	}
}

// nextLocked gives the turn to the call that has waited longest, if no call has
// it. A call whose own window was closed since is moved to starved; whoever
// opened the windows has accounted for that.
func (c *conn) nextLocked() {
	for c.turn == nil && c.waiting.first != nil && c.openLocked() {
		s := c.waiting.first
		s.unlist(listSend)
		if c.windowLocked(s) <= 0 {
			c.starved.push(s)
			continue
		}
		c.turn, s.turnLeft = s, turnSize
		s.wakeLocked()
	}
}

// sentLocked counts n bytes that a call sends. When the call has had its turn
// and others wait, it waits behind them.
func (c *conn) sentLocked(s *call, n int64) {
	s.outWindow -= n
	c.outWindow -= n
	s.sent += n
	c.sent += n
	c.business += int(n) / businessBytes
	if c.turn != s {
		return
	}
	if s.turnLeft -= n; s.turnLeft <= 0 {
		s.turnLeft = turnSize
		if c.waiting.n > 0 {
			c.passLocked(s)
		}
	}
}

// widenLocked increases a call's send window by n bytes, unless that is too
// much.
func (c *conn) widenLocked(s *call, n int64) bool {
	s.outWindow += n
	c.widest = max(c.widest, s.outWindow)
	open := c.windowLocked(s)
	if open > h2.MaxWindow {
		return false
	}
	if open > 0 && s.links[listSend].list == &c.starved {
		s.unlist(listSend)
		c.waiting.push(s)
		c.nextLocked()
	}
	return true
}

// resizeLocked changes the windows of all streams to a new size. It returns the
// cost beyond a frame, and false when one is then too large. It looks at the
// streams only when one may be.
func (c *conn) resizeLocked(size int64) (work int, ok bool) {
	larger := size > c.settings.window
	c.settings.window = size
	if !larger {
		return 0, true
	}
	if size+c.widest > h2.MaxWindow {
		work = len(c.streams)
		c.widest = 0
		for _, s := range c.streams {
			c.widest = max(c.widest, s.outWindow)
		}
		if size+c.widest > h2.MaxWindow {
			return work, false
		}
	}
	work += c.starved.n
	for s := c.starved.first; s != nil; s = c.starved.first {
		s.unlist(listSend)
		c.waiting.push(s)
	}
	c.nextLocked()
	return work, true
}
