package httpserver

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"shoal/internal/connlimit"
	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/reject"
)

// A phase is what the goroutine that serves a connection waits for when it
// reads; each has its own limit.
//
//	idle → head → body → idle; body → drain → idle or closed
type phase uint8

const (
	phaseIdle  phase = iota // the first byte of a request
	phaseHead               // the rest of its headers
	phaseBody               // the body, by the handler
	phaseDrain              // what the handler left of the body
)

// The states of a connection as other goroutines see it. Whoever moves one
// from idle owns it: a request that came in, or a server that closes.
//
//	idle ⇄ busy; idle → closed; busy → closed
const (
	connIdle int32 = iota
	connBusy
	connClosed
)

const (
	// writeStep is how much is written under one deadline, so that a large
	// answer may take long as long as it makes progress.
	writeStep = 256 << 10
	// minBodyRate is the lowest rate of a body in bytes per second, once it has
	// had the stall timeout to begin.
	minBodyRate = 1 << 10
	// lingerFor is how long a connection is still read after an answer to an
	// incomplete request. If it were closed at once, the client would see a
	// reset instead of the answer.
	lingerFor = 5 * time.Second
	// lastRequestTime is how long a connection may still bring a request when the
	// server closes. Its client may have sent one, or be about to, since it was
	// told nothing: the answer then tells it.
	lastRequestTime = 100 * time.Millisecond
)

// A conn is a client's connection. It limits how long each read and write may
// take, without a system call or a timer for each, and has the context that
// ends when the client hangs up.
//
// Except for kill, only the goroutine that serves the connection uses it.
type conn struct {
	net.Conn
	socket net.Conn // the same without TLS
	server *Server
	x      *Exchange // set while it is served
	id     uint64
	ctx    *infer.Caller // ends with the connection; requests on it run under it
	state  atomic.Int32
	// idleSince is when the connection began to wait for its client, and
	// reading whether it does so within a request.
	idleSince atomic.Int64
	reading   atomic.Bool
	half      halfClose

	phase    phase
	readBy   time.Time      // the read deadline that is set
	writeBy  time.Time      // the write deadline that is set
	headBy   time.Time      // when the headers must be there
	bodyFrom time.Time      // when a period of the body began
	bodySize int64          // what has been read of it since
	holds    atomic.Int64   // memory that is held while the server waits for the client
	moved    atomic.Int64   // bytes that were read and written
	used     atomic.Bool    // a request was answered on it
	claim    inflight.Claim // of an answer that is being written
	unread   bool           // the client may still be sending what nobody will read
}

// Read implements net.Conn. It first sends pending answers: the client may wait
// for them before it sends more.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.x.out.Flush(); err != nil {
		return 0, err
	}
	switch c.phase {
	case phaseIdle:
		return c.readFirst(p)
	case phaseHead:
		if c.headBy.IsZero() {
			c.headBy = time.Now().Add(c.server.opt.HeaderTimeout)
		}
		c.readUntil(c.headBy)
		return c.readMore(p)
	case phaseBody:
		return c.readBody(p)
	}
	return c.Conn.Read(p)
}

// readMore reads more of a request. Other goroutines can see that the server
// waits for the client.
func (c *conn) readMore(p []byte) (int, error) {
	c.reading.Store(true)
	n, err := c.Conn.Read(p)
	c.reading.Store(false)
	c.moved.Add(int64(n))
	c.idleSince.Store(time.Now().UnixNano())
	return n, err
}

// beginBody applies the limits of a body from now on.
func (c *conn) beginBody() { c.phase, c.bodyFrom = phaseBody, time.Time{} }

// readBody waits for more of a body. The body must keep moving and have a
// minimum rate: otherwise one byte now and then would hold the connection for
// ever. The rate is checked in periods, each with a tolerance of the stall
// timeout.
func (c *conn) readBody(p []byte) (int, error) {
	now, stall := time.Now(), c.server.opt.StallTimeout
	if c.bodyFrom.IsZero() {
		c.bodyFrom, c.bodySize = now, 0
	}
	earned := time.Duration(c.bodySize) * (time.Second / minBodyRate)
	if last := c.bodyFrom.Add(stall + earned); last.Sub(now) < stall {
		c.readUntil(last)
	} else {
		c.readWithin(now, stall)
	}
	n, err := c.readMore(p)
	if c.bodySize += int64(n); earned > stall {
		c.bodyFrom = time.Time{} // a fast period earns the next one nothing
	}
	return n, err
}

// readFirst waits for a request to begin.
func (c *conn) readFirst(p []byte) (int, error) {
	// All answers are written by now, or nothing would be read.
	c.claim.Release()
	c.holds.Store(0)
	c.state.CompareAndSwap(connBusy, connIdle)
	now := time.Now()
	c.idleSince.Store(now.UnixNano())
	c.readWithin(now, c.server.opt.IdleTimeout)
	if c.server.closing.Load() {
		c.readUntil(now.Add(lastRequestTime))
	}
	n, err := c.Conn.Read(p)
	if isTimeout(err) && !c.server.closing.Load() {
		c.closedBy(reject.IdleTimeout)
	}
	if n > 0 {
		if !c.state.CompareAndSwap(connIdle, connBusy) {
			return 0, net.ErrClosed
		}
		c.phase, c.headBy = phaseHead, time.Time{}
	}
	return n, err
}

// readWithin sets the read deadline to about d from now: a deadline that is
// close enough is not changed, since that costs more than reading the clock.
func (c *conn) readWithin(now time.Time, d time.Duration) {
	by := now.Add(d)
	if early := by.Sub(c.readBy); early < 0 || early > d/8 {
		c.readUntil(by)
	}
}

func (c *conn) readUntil(t time.Time) {
	if !c.readBy.Equal(t) {
		c.readBy = t
		c.Conn.SetReadDeadline(t) // fails only on a closed connection, as the read will
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.half.answer()
	done := 0
	for {
		c.writeWithin(c.server.opt.StallTimeout)
		n, err := c.Conn.Write(p[done:min(len(p), done+writeStep)])
		done += n
		c.moved.Add(int64(n))
		if err != nil || done == len(p) {
			if isTimeout(err) {
				c.closedBy(reject.WriteTimeout)
			}
			return done, err
		}
	}
}

func (c *conn) writeWithin(d time.Duration) {
	by := time.Now().Add(d)
	if early := by.Sub(c.writeBy); early > d/8 {
		c.writeBy = by
		c.Conn.SetWriteDeadline(by)
	}
}

// Waiting implements inflight.Holder.
func (c *conn) Waiting() (bytes, moved int64) { return c.holds.Load(), c.moved.Load() }

// Evict implements inflight.Holder.
func (c *conn) Evict() {
	c.closedBy(reject.MaxMemory)
	c.kill(false)
}

// closedBy reports the limit that ends the connection.
func (c *conn) closedBy(limit reject.Close) {
	c.server.opt.Rejects.Closed(reject.HTTP, limit, c.RemoteAddr(), "")
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// end closes the connection. It waits a little for a client that is still
// sending, after telling it that the answer is complete. Meanwhile it is the
// first to make room for another.
func (c *conn) end() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if _, secure := c.Conn.(*tls.Conn); ok && (c.unread || secure) && half.CloseWrite() == nil && c.unread {
		c.used.Store(false)
		c.reading.Store(true)
		c.readUntil(time.Now().Add(lingerFor))
		io.Copy(io.Discard, struct{ io.Reader }{c.Conn})
	}
	c.kill(false)
}

// IdleSince implements connlimit.Conn.
func (c *conn) IdleSince() (int64, bool) {
	since := c.idleSince.Load()
	if !c.used.Load() {
		since -= connlimit.Unused
	}
	return since, c.state.Load() == connIdle || c.reading.Load()
}

// CloseIdle implements connlimit.Conn.
func (c *conn) CloseIdle() bool {
	if !c.reading.Load() && (connlimit.Unread(c.socket) || !c.state.CompareAndSwap(connIdle, connClosed)) {
		return false
	}
	c.kill(false)
	return true
}

// kill closes the connection from another goroutine; its own goroutine then
// finds it closed. With onlyIdle it does not close one that serves a request.
func (c *conn) kill(onlyIdle bool) {
	if onlyIdle && !c.state.CompareAndSwap(connIdle, connClosed) {
		return
	}
	c.state.Store(connClosed)
	c.ctx.Leave()
	c.socket.Close() // TLS would wait for a client that does not read
}
