package load

import (
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/net/http2"
	"shoal/internal/protocol/h2"
)

// A connection that waits for its next request does not read, and so does not
// hear that the server wants to stop, or asks whether anyone is there. Tend
// listens for a moment.

const (
	// restAfter is how long a connection must have been idle to be looked at
	// before it is used again: the server may have ended it meanwhile.
	restAfter = time.Millisecond
	// tendFor is how long the rest of something encrypted may take to come.
	tendFor = 50 * time.Millisecond
)

// readNow reads what has come, without waiting for more. It says whether the
// connection is over.
func readNow(conn net.Conn, b []byte) (n int, over bool) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return takeNow(conn, b)
	}
	if n, over = peekNow(secure.NetConn()); over || n == 0 {
		return 0, over
	}
	_ = secure.SetReadDeadline(time.Now().Add(tendFor)) // a connection that takes none fails below
	n, err := secure.Read(b)
	_ = secure.SetReadDeadline(time.Time{})
	timeout, ok := err.(net.Error)
	return n, err != nil && !(ok && timeout.Timeout())
}

// Tend hears the end of a connection that the server closed.
func (c *httpConn) Tend() {
	if !c.use.TryLock() {
		return // a request is under way
	}
	defer c.use.Unlock()
	c.rest()
}

// rest lets go of a connection that is over. Nothing should come over an idle
// one, so whatever does ends it too.
func (c *httpConn) rest() {
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

// Tend answers what the server asked of an idle connection, and leaves one that
// the server wants to end.
func (c *h2Conn) Tend() {
	if !c.use.TryLock() {
		return // a call is under way
	}
	defer c.use.Unlock()
	c.rest()
}

// rest reads and answers what has come over an idle connection. Afterwards there
// may be none.
func (c *h2Conn) rest() {
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

// leave ends a connection that the server is about to end, and before that a
// stream that it would otherwise wait for.
func (c *h2Conn) leave() {
	if c.conn != nil && c.stream != 0 && !c.answer.ended {
		c.out = h2.AppendHeader(c.out, 0, http2.FrameData, http2.FlagDataEndStream, c.stream)
		_ = c.flush() // the connection ends either way
	}
	c.hangUp()
}

// compact makes room behind what was read.
func (c *h2Conn) compact() {
	to := c.in
	if c.from == 0 {
		to = make([]byte, max(readBuffer, 2*len(c.in)))
	}
	c.from, c.to, c.in = 0, copy(to, c.in[c.from:c.to]), to
}

// actAll acts on all frames that are whole.
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

// frameLength returns the length of the next frame's content and whether all of
// it is there.
func (c *h2Conn) frameLength() (int, bool) {
	h := c.in[c.from:c.to]
	if len(h) < h2.HeaderLen {
		return 0, false
	}
	length := h2.ParseHeader(h).Length
	return length, len(h) >= h2.HeaderLen+length
}
