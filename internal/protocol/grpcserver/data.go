package grpcserver

import (
	"errors"
	"io"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"shoal/internal/protocol/h2"
	"shoal/internal/reject"
)

// Errors of the messages of a call.
var (
	errBrokenOff = rejectf(reject.Malformed, codes.Internal, "%v", io.ErrUnexpectedEOF)
	errNoMessage = rejectf(reject.Malformed, codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	errMessages  = rejectf(reject.Malformed, codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	errFlag      = rejectf(reject.Malformed, codes.Internal, "grpc: compressed flag set with identity or empty encoding")
)

func (c *conn) onData(h h2.Header) error {
	if h.Stream == 0 || c.idle(h.Stream) {
		return connError{http2.ErrCodeProtocol, "DATA of no stream or an idle one"}
	}
	size, pad := h.Length, 0
	if h.Flags.Has(http2.FlagDataPadded) {
		if h.Length == 0 {
			return connError{http2.ErrCodeFrameSize, "DATA has no room for its padding"}
		}
		b, err := c.in.take(1)
		if err != nil {
			return err
		}
		if pad = int(b[0]); pad >= h.Length {
			return connError{http2.ErrCodeProtocol, "DATA has more padding than payload"}
		}
		size = h.Length - 1 - pad
	}
	s := c.lookup(h.Stream)
	ok, err := c.arrived(s, h, int64(h.Length-size))
	if err != nil {
		return err
	}
	if !ok {
		return c.in.discard(size + pad)
	}
	s.received += int64(size)
	if err := c.deliver(s, size); err != nil {
		return err
	}
	if err := c.in.discard(pad); err != nil {
		return err
	}
	if h.Flags.Has(http2.FlagDataEndStream) && !s.ended.Load() {
		c.remoteEnd(s)
	}
	return nil
}

// arrived counts a data frame against the windows and reports whether a call
// wants it. Nobody reads the padding, so it is granted again.
func (c *conn) arrived(s *call, h h2.Header, padding int64) (bool, error) {
	n := int64(h.Length)
	c.mu.Lock()
	c.inWindow -= n
	c.unacked += n
	if c.inWindow < 0 {
		c.mu.Unlock()
		return false, connError{http2.ErrCodeFlowControl, "DATA exceeds the connection's window"}
	}
	if c.grantConnLocked(connWindow / 2) {
		c.kickLocked()
	}
	if s == nil {
		c.mu.Unlock()
		return false, nil
	}
	s.inWindow -= n
	s.arrived += n
	s.unacked += padding
	closed, over := s.remoteClosed, s.inWindow < 0
	s.delivering = !closed && !over
	s.heldByOthers = c.heldLocked() - s.arriving
	c.mu.Unlock()
	switch {
	case closed:
		c.reset(s.id, http2.ErrCodeStreamClosed)
	case over:
		c.reset(s.id, http2.ErrCodeFlowControl)
	}
	return !closed && !over, nil
}

// grantConnLocked lets the client send again what has arrived, once that is so
// much. The goroutine that answers does it early, as it writes anyway.
func (c *conn) grantConnLocked(least int64) bool {
	if c.unacked < least {
		return false
	}
	c.out.settle(h2.AppendNumber(c.out.buf, http2.FrameWindowUpdate, 0, uint32(c.unacked)))
	c.inWindow += c.unacked
	c.unacked = 0
	return true
}

// deliver reads n bytes of a call's messages.
func (c *conn) deliver(s *call, n int) error {
	err := c.feed(s, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.delivering = false
	if !s.ended.Load() {
		arriving := s.assembly.arriving()
		c.arriving += arriving - s.arriving
		s.arriving = arriving
	}
	if s.ended.Load() {
		s.dropLocked()
	}
	if err == nil {
		s.need = int64(s.assembly.left)
		c.followLocked(s)
		if c.grantLocked(s) {
			c.kickLocked()
		}
	}
	return err
}

// feed reads n bytes into the call's messages.
func (c *conn) feed(s *call, n int) error {
	a, opt := &s.assembly, &c.server.opt
	for n > 0 {
		if a.fault != nil {
			return c.in.discard(n)
		}
		rest, done, err := a.feed(&c.in, n, opt.MaxReceive, s.heldByOthers, opt.Memory)
		if err != nil {
			return err
		}
		n = rest
		switch {
		case a.fault != nil:
			s.fail(a.fault)
		case done:
			s.add(a.take())
		}
	}
	return nil
}

// heldLocked returns roughly what the connection's calls hold of the budget. A
// connection that holds much is not a small client, however small its calls
// are.
func (c *conn) heldLocked() int64 { return c.charged + c.arriving }

// dropLocked frees what has arrived of a call that is over, unless a handler
// has it or the reader is adding to it.
func (c *call) dropLocked() {
	if c.delivering {
		return
	}
	c.assembly.free(c.conn.server.opt.Memory)
	if !c.handedOver {
		c.message.free()
	}
}

// grantLocked lets the client send more for a call: as much as was read, once
// that is enough, and the rest of a message that is larger than the window,
// unless other requests wait for memory.
func (c *conn) grantLocked(s *call) bool {
	var by int64
	if s.unacked >= streamWindow/2 {
		by = min(s.unacked, h2.MaxWindow-s.inWindow)
		s.unacked -= by
	}
	if missing := s.need - s.inWindow - by; missing > 0 && (s.inbox == nil || s.inbox.empty()) {
		by += missing
	}
	if by <= 0 || s.ended.Load() {
		return false
	}
	s.inWindow += by
	c.out.settle(h2.AppendNumber(c.out.buf, http2.FrameWindowUpdate, s.id, uint32(by)))
	return true
}

// add adds a message that has arrived.
func (c *call) add(m message) {
	switch {
	case c.inbox != nil:
		c.inbox.add(m)
	case c.message.there:
		m.data.Free()
		c.assembly.fault = errMessages
		c.fail(errMessages)
	default:
		c.message = m
	}
}

// fail ends the incoming messages with an error.
func (c *call) fail(err error) {
	if c.inbox != nil {
		c.inbox.close(err)
		return
	}
	if !c.started {
		c.inErr = err
		c.conn.run(c)
	}
}

// unpack returns a message's bytes, decompressed, which the caller frees.
func (c *call) unpack(m message) (message, error) {
	if !m.compressed {
		return m, nil
	}
	defer m.data.Free()
	by := c.req.decompressor
	if by == nil {
		return message{}, errFlag
	}
	opt := &c.conn.server.opt
	data, err := decompress(by, m.data, opt)
	return message{data: data, there: true}, err
}

// decode reads a message into v.
func (c *call) decode(m message, v any) error {
	m, err := c.unpack(m)
	if err != nil {
		return err
	}
	defer m.data.Free()
	if err := c.conn.server.opt.Codec.Unmarshal(m.data, v); err != nil {
		if reject.ReasonOf(err) != reject.None {
			return err // the codec's own error
		}
		return rejectf(reject.Malformed, codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// readOnly reads the message of a call that has one.
func (c *call) readOnly(v any) error {
	if c.inErr != nil {
		return c.inErr
	}
	if !c.message.there {
		return errors.New("BUG: the message was read twice")
	}
	m := c.message
	c.message = message{}
	return c.decode(m, v)
}
