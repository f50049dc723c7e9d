package grpcserver

import (
	"context"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/internal/protocol/h2"
	"shoal/internal/reject"
)

func (c *conn) onHeaders(h h2.Header) error {
	if h.Stream == 0 {
		return connError{http2.ErrCodeProtocol, "HEADERS of no stream"}
	}
	p, err := c.fragment(h)
	if err != nil {
		return err
	}
	p, ok := h2.Unpad(h, p)
	if !ok {
		return connError{http2.ErrCodeProtocol, "HEADERS has more padding than payload"}
	}
	if h.Flags.Has(http2.FlagHeadersPriority) {
		if len(p) < h2.PriorityLen {
			return connError{http2.ErrCodeFrameSize, "HEADERS has no room for its priority"}
		}
		if dependsOnItself(p, h.Stream) {
			return connError{http2.ErrCodeProtocol, "a stream depends on itself"}
		}
		p = p[h2.PriorityLen:]
	}
	end := h.Flags.Has(http2.FlagHeadersEndStream)
	if h.Flags.Has(http2.FlagHeadersEndHeaders) {
		return c.header(h.Stream, p, end)
	}
	c.headers.stream, c.headers.endStream, c.headers.frames = h.Stream, end, 0
	c.headers.block = append(c.headers.block[:0], p...)
	return nil
}

func (c *conn) onContinuation(h h2.Header) error {
	hd := &c.headers
	if hd.stream == 0 {
		return connError{http2.ErrCodeProtocol, "CONTINUATION of nothing"}
	}
	p, err := c.fragment(h)
	if err != nil {
		return err
	}
	if hd.frames++; len(hd.block)+len(p) > maxHeaderBlock || hd.frames > maxHeaderFrames {
		return c.headerTooLarge()
	}
	hd.block = append(hd.block, p...)
	if !h.Flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	stream, block := hd.stream, hd.block
	hd.stream, hd.block = 0, nil
	return c.header(stream, block, hd.endStream)
}

// fragment reads a part of a header block.
func (c *conn) fragment(h h2.Header) ([]byte, error) {
	switch {
	case h.Length <= inputSize/2:
		return c.in.take(h.Length)
	case h.Length > maxHeaderBlock:
		return nil, c.headerTooLarge()
	}
	b := make([]byte, h.Length)
	return b, c.in.fill(b)
}

// header handles a complete header: it begins a call, or ends the client's
// messages.
func (c *conn) header(id uint32, block []byte, endStream bool) error {
	if id%2 == 0 {
		return connError{http2.ErrCodeProtocol, "a client's stream has an even number"}
	}
	if id <= c.lastID {
		return c.trailers(id, block, endStream)
	}
	r, err := c.headers.parse(c.server, block)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.lastID = id
	c.mu.Unlock()
	if r.malformed {
		c.rejected(reject.Malformed, "the header of a call is malformed")
		c.reset(id, http2.ErrCodeProtocol)
		return nil
	}
	size := c.claim(r)
	s, refused, crowded := c.open(id, r, size, endStream)
	if s == nil {
		c.server.budget().Release(size)
	}
	if refused != nil {
		cost := refusalCost
		if r.method != nil && r.method.clientStreams {
			cost = refusedStream
		}
		if err := c.charge(cost); err != nil {
			return err
		}
	}
	if s != nil {
		c.begin(s, endStream)
		if s.streams() {
			if err := c.charge(streamCost); err != nil {
				return err
			}
		}
	}
	if crowded {
		c.throttle()
	}
	return nil
}

// trailers handles a header that is not the first of its stream.
func (c *conn) trailers(id uint32, block []byte, endStream bool) error {
	s := c.lookup(id)
	early := s == nil && c.endedEarly(id)
	if s == nil && !early {
		return connError{http2.ErrCodeProtocol, "HEADERS of a stream that is over or was passed over"}
	}
	if err := c.headers.decode(block); err != nil {
		return err
	}
	switch {
	case s != nil && s.remoteClosed:
		c.reset(id, http2.ErrCodeStreamClosed)
	case !endStream || c.headers.invalid || c.headers.hasPseudo():
		c.reset(id, http2.ErrCodeProtocol)
	case early: // sent before the client had our answer
	default:
		c.remoteEnd(s)
	}
	return nil
}

// endedEarly reports whether we ended a stream before the client had.
func (c *conn) endedEarly(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.early.has(id)
}

var (
	errDeadline  = status.Error(codes.DeadlineExceeded, "Deadline Exceeded") // the text of clients' own libraries
	errCancelled = status.Error(codes.Canceled, context.Canceled.Error())
)

// claim claims the memory of a call and returns how much that is, or refuses
// the request when there is none. It may wait, but not for a call with a stream
// of messages: the connection that asks may itself hold all of the memory by
// such calls, and would be closed instead of this call refused.
func (c *conn) claim(r *request) int64 {
	switch {
	case r.refusal != nil:
		return 0
	case r.timed && r.timeout <= 0:
		r.refusal = &refusalDeadline
		return 0
	}
	c.mu.Lock()
	held := c.heldLocked()
	c.mu.Unlock()
	budget := c.server.budget()
	if m := r.method; m != nil && m.clientStreams {
		if !budget.Try(streamMemory, held) {
			r.refusal = refusalMemory(budget.ErrFull(streamMemory))
			return 0
		}
		return streamMemory
	}
	if err := budget.Acquire(callMemory, held); err != nil {
		r.refusal = refusalMemory(err)
		return 0
	}
	return callMemory
}

// open makes a call of a request, for which size bytes were claimed, or refuses
// it at once. It also reports whether the reader must wait. Both are nil when
// the connection accepts no more calls.
func (c *conn) open(id uint32, r *request, size int64, endStream bool) (_ *call, _ *refusal, crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	crowded = c.crowdedLocked()
	limit := c.server.opt.MaxStreams
	switch {
	case c.state >= connLingering:
		return nil, nil, false
	case c.state != connOpen:
		c.early.add(id)
		c.putLocked(h2.AppendNumber(c.out.buf, http2.FrameRSTStream, id, uint32(http2.ErrCodeRefusedStream)))
		return nil, nil, crowded
	case limit > 0 && len(c.streams)+c.cutOff >= int(limit):
		c.rejected(refusalStreams.reason, refusalStreams.status.Message())
		c.early.add(id)
		c.putLocked(h2.AppendNumber(c.out.buf, http2.FrameRSTStream, id, uint32(http2.ErrCodeRefusedStream)))
		return nil, &refusalStreams, crowded
	}
	if refusal := r.refusal; refusal != nil {
		// Count it first: a client that has its answer finds it counted.
		c.rejected(refusal.reason, refusal.status.Message())
		c.logRefusal(r, refusal)
		before := c.out.size
		c.refuseLocked(id, r, refusal, endStream)
		c.control += c.out.size - before
		c.kickLocked()
		return nil, refusal, crowded
	}
	s := &call{conn: c, id: id, charged: size, req: r, remoteClosed: endStream, inWindow: streamWindow}
	s.Bind((*callContext)(s))
	if by := r.decompressor; by != nil {
		s.compressor, s.compress = by, by.Name()
	}
	if len(c.streams) == 0 {
		c.widest = 0
	}
	c.streams[id] = s
	c.charged += size
	if size == streamMemory {
		c.streamed += size
	}
	if m := r.method; m != nil && !m.clientStreams && !endStream {
		c.receiving.push(s)
	}
	if s.streams() {
		s.inbox = newInbox()
	}
	if r.timed { // from here on the call can end at any time
		s.limit(r.timeout)
	}
	return s, nil, crowded
}

var (
	// A call whose deadline has already passed does not count as rejected.
	refusalDeadline = refusal{200, status.Convert(errDeadline), reject.None}
	refusalStreams  = refusal{status: status.New(codes.Unavailable, "the connection has as many calls as it may"), reason: reject.Overloaded}
)

// headerTooLarge ends a connection whose client sends a header that is too
// large.
func (c *conn) headerTooLarge() error {
	c.rejected(reject.TooLarge, "a header is too large")
	return connError{http2.ErrCodeEnhanceYourCalm, "a header is too large"}
}

// refusalMemory is the answer to a call that the memory budget has no room for.
func refusalMemory(err error) *refusal {
	return &refusal{200, exhausted(err).st, reject.Overloaded}
}

// begin runs the call, unless its message must come first.
func (c *conn) begin(s *call, endStream bool) {
	c.current = s
	m := s.req.method
	switch {
	case m == nil: // a runner reports why
		s.assembly.fault = errNoMessage // nobody reads its messages
		c.run(s)
	case m.clientStreams:
		c.run(s)
	}
	if endStream {
		c.ended(s)
	}
}

// run gives a call to a runner.
func (c *conn) run(s *call) {
	s.started = true
	c.mu.Lock()
	gone := s.ended.Load()
	s.running, s.handedOver = !gone, !gone
	if !gone && !s.streams() {
		c.runs++
	}
	s.unlist(listReceive)
	c.mu.Unlock()
	if gone {
		return
	}
	c.server.handlers.Add(1)
	c.server.runners.run(s)
}

// remoteEnd records that the client has sent everything.
func (c *conn) remoteEnd(s *call) {
	c.mu.Lock()
	s.remoteClosed = true
	s.unlist(listReceive)
	c.mu.Unlock()
	c.ended(s)
}

// ended runs a call that waited for its message, or ends its stream of
// messages.
func (c *conn) ended(s *call) {
	if n := s.req.length; n >= 0 && n != s.received {
		c.reset(s.id, http2.ErrCodeProtocol)
		return
	}
	if s.assembly.prefixN > 0 && s.assembly.fault == nil {
		s.fail(errBrokenOff)
		return
	}
	switch {
	case s.inbox != nil:
		s.inbox.finish()
	case !s.started:
		c.mu.Lock() // its deadline may free the message
		if !s.message.there {
			s.inErr = errNoMessage
		}
		c.mu.Unlock()
		c.run(s)
	}
}

// expire ends a call at its deadline. It is called when the context has ended,
// for whatever reason.
func (c *call) expire() {
	if c.Err() != context.DeadlineExceeded {
		return
	}
	c.endWith(status.Convert(errDeadline))
}
