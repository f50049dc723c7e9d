package grpcserver

import (
	"runtime"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
	"shoal/internal/protocol/h2"
)

// These bound what a client that does not read makes the server hold:
// maxPending is how much may wait to be written before senders of messages
// wait, maxControl how much the reader may add before it waits. It also waits,
// and accepts no more calls, when the ends of calls pile up.
const (
	maxPending = 1 << 20
	maxControl = 64 << 10
)

// flushLocked writes the output, or leaves it to the goroutine that is writing.
// It releases the mutex meanwhile and may block: the goroutine that reads uses
// kickLocked.
func (c *conn) flushLocked() {
	if c.writing {
		return
	}
	c.writing = true
	if len(c.streams) > 0 {
		// Others of the same batch may be about to answer: one write then
		// suffices for all.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.writeLocked()
}

// kickLocked is flushLocked on another goroutine.
func (c *conn) kickLocked() {
	if c.writing || c.state == connClosed {
		return
	}
	c.writing = true
	c.server.handlers.Go(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writeLocked()
	})
}

// writeLocked writes until there is nothing to write. The caller has set
// writing.
func (c *conn) writeLocked() {
	for !c.out.empty() && c.state != connClosed {
		c.out, c.spare = c.spare, c.out
		c.control = 0
		c.writeSpareLocked()
		c.nextLocked()
		c.readable.Broadcast()
	}
	c.writing = false
	switch c.state {
	case connClosed:
		c.out.reset()
	case connLingering:
		if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

// writeSpareLocked writes what is in spare. It releases the mutex meanwhile.
func (c *conn) writeSpareLocked() {
	var sent int
	var err error
	if c.spare.lent > 0 {
		c.mu.Unlock()
		sent, err = c.spare.try(c.socket, &c.written)
		c.mu.Lock()
	}
	if err == nil && sent < c.spare.size {
		c.blocking = true
		c.out.keep(c.server.opt.Memory)
		c.mu.Unlock()
		c.spare.keep(c.server.opt.Memory)
		err = c.spare.write(c.nc, sent, &c.written)
		c.mu.Lock()
		c.blocking = false
	}
	c.mu.Unlock()
	c.spare.reset()
	if err != nil {
		c.end()
	}
	c.mu.Lock()
}

// putLocked queues a small frame of the reader.
func (c *conn) putLocked(b []byte) {
	if c.state >= connLingering {
		return
	}
	c.control += len(b) - len(c.out.buf)
	c.out.settle(b)
	c.kickLocked()
}

// throttle makes the reader wait while too much of its output is pending.
func (c *conn) throttle() {
	c.mu.Lock()
	for c.state != connClosed && c.crowdedLocked() {
		c.readable.Wait()
	}
	c.mu.Unlock()
}

func (c *conn) crowdedLocked() bool {
	return c.control > maxControl || c.cutOff > maxCutOff || c.out.size > 2*maxPending
}

// maxCutOff is how many calls of a connection may run on after the client has
// reset them.
const maxCutOff = 1000

// sendLocked queues a message, with the header before it if that was not sent.
// It waits while the client's windows are closed. When the last of data is lent it
// may be replaced by a copy of what is left of it.
func (c *conn) sendLocked(s *call, data mem.BufferSlice, compressed, lent bool) error {
	if !s.ended.Load() && !s.headerSent {
		c.headerLocked(s)
	}
	size := data.Len()
	m := cursor{data: data, lent: lent, prefix: [prefixLen]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}}
	if compressed {
		m.prefix[0] = 1
	}
	left := int64(prefixLen + size)
	c.unsent += left
	defer func() { c.unsent -= left }()
	for left > 0 {
		if s.ended.Load() {
			return errCancelled
		}
		wait := c.mustWaitLocked(s)
		if m.lent && (wait || c.blocking || c.socket == nil) {
			m.keep(c.server.opt.Memory)
		}
		if wait {
			c.awaitLocked(s)
			continue
		}
		n := min(left, c.windowLocked(s), c.outWindow, int64(c.settings.maxFrame))
		c.sentLocked(s, n)
		c.unsent -= n
		left -= n
		s.sending = left > 0
		c.out.settle(h2.AppendHeader(c.out.buf, int(n), http2.FrameData, 0, s.id))
		m.copy(&c.out, int(n))
		c.answered = true
	}
	c.passLocked(s)
	return nil
}

// A cursor walks through a message in its wire format.
type cursor struct {
	prefix  [prefixLen]byte
	prefixN int
	data    mem.BufferSlice
	at      int  // in the first of data
	lent    bool // the last of data is
}

// copy queues the next n bytes.
func (m *cursor) copy(o *output, n int) {
	if m.prefixN < prefixLen {
		part := m.prefix[m.prefixN:min(prefixLen, m.prefixN+n)]
		o.settle(append(o.buf, part...))
		m.prefixN += len(part)
		n -= len(part)
	}
	for n > 0 {
		b := m.data[0].ReadOnlyData()[m.at:]
		part := b[:min(n, len(b))]
		o.payload(part, m.data[0], m.lent && len(m.data) == 1)
		n -= len(part)
		if m.at += len(part); len(part) == len(b) {
			m.data, m.at = m.data[1:], 0
		}
	}
}
