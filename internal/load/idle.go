package load

import (
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/net/http2"
	"shoal/internal/protocol/h2"
)

// A connection that waits for its next request does not read. So it does not
// notice that the server wants to stop, or sends a ping. PollIdle reads for a
// moment.

const (
	// pollIdleAfter is how long a connection must have been idle to be polled
	// before it is used again: the server may have closed it.
	pollIdleAfter = time.Millisecond
	// pollIdleFor is how long the rest of a TLS record may take to arrive.
	pollIdleFor = 50 * time.Millisecond
)

// readNow reads what has arrived, without waiting for more. It reports whether
// the connection is over.
func readNow(conn net.Conn, b []byte) (n int, over bool) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return takeNow(conn, b)
	}
	if n, over = peekNow(secure.NetConn()); over || n == 0 {
		return 0, over
	}
	_ = secure.SetReadDeadline(time.Now().Add(pollIdleFor)) // a connection without deadlines fails below
	n, err := secure.Read(b)
	_ = secure.SetReadDeadline(time.Time{})
	timeout, ok := err.(net.Error)
	return n, err != nil && !(ok && timeout.Timeout())
}

// PollIdle notices that the server closed the connection.
func (c *httpConn) PollIdle() {
	if !c.use.TryLock() {
		return // a request is in flight
	}
	defer c.use.Unlock()
	c.pollIdle()
}

// pollIdle closes a connection that is over. Nothing should arrive on an idle
// connection, so anything that does ends it too.
func (c *httpConn) pollIdle() {
	if c.conn == nil {
		return
	}
	inner := c.conn
	if secure, ok := inner.(*tls.Conn); ok {
		inner = secure.NetConn()
	}
	if n, over := peekNow(inner); over || n > 0 {
		c.hangUp()
	}
}

// PollIdle answers the server's frames on an idle connection, and closes a
// connection that the server wants to end.
func (c *h2Conn) PollIdle() {
	if !c.use.TryLock() {
		return // a call is in flight
	}
	defer c.use.Unlock()
	c.pollIdle()
}

// pollIdle reads and answers the frames that arrived on an idle connection. It
// may close the connection.
func (c *h2Conn) pollIdle() {
	for c.conn != nil {
		if c.to == len(c.in) {
			c.compact()
		}
		n, over := readNow(c.conn, c.in[c.to:])
		c.to += n
		if over || c.actAll() != nil || c.flush() != nil {
			c.hangUp()
			return
		}
		if n == 0 {
			break
		}
	}
	if c.conn == nil || !c.leaving && !(c.stream != 0 && c.answer.ended) {
		return
	}
	c.leave()
}

// leave closes a connection that the server is about to close. Before that it
// ends an open stream, for which the server would wait.
func (c *h2Conn) leave() {
	if c.conn != nil && c.stream != 0 && !c.answer.ended {
		c.out = h2.AppendHeader(c.out, 0, http2.FrameData, http2.FlagDataEndStream, c.stream)
		_ = c.flush() // the connection ends either way
	}
	c.hangUp()
}

// compact moves unread bytes to the start of the buffer.
func (c *h2Conn) compact() {
	to := c.in
	if c.from == 0 {
		to = make([]byte, max(readBuffer, 2*len(c.in)))
	}
	c.from, c.to, c.in = 0, copy(to, c.in[c.from:c.to]), to
}

// actAll handles all complete frames.
func (c *h2Conn) actAll() error {
	for {
		length, whole := c.frameLength()
		if length > maxFrame {
			return errProtocol
		}
		if !whole {
			return nil
		}
		if err := c.receive(nil); err != nil {
			return err
		}
	}
}

// frameLength returns the length of the next frame's payload and whether all of
// it has arrived.
func (c *h2Conn) frameLength() (int, bool) {
	h := c.in[c.from:c.to]
	if len(h) < h2.HeaderLen {
		return 0, false
	}
	length := h2.ParseHeader(h).Length
	return length, len(h) >= h2.HeaderLen+length
}
