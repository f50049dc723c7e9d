package grpcserver

import (
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"shoal/internal/protocol/h2"
)

// headerLocked queues the header of an answer. When the client accepts not even
// that, the call is over.
func (c *conn) headerLocked(s *call) {
	s.headerSent = true
	h := head{http: 200, subtype: s.req.subtype, encoding: s.compress, md: s.header}
	if !c.putHeadLocked(&h, s.id, false) {
		c.removeLocked(s)
		c.kickLocked()
	}
}

// finishLocked queues the end of a call and removes it from the connection.
func (c *conn) finishLocked(s *call, st *status.Status) {
	if !s.headerSent && len(s.header) > 0 {
		c.headerLocked(s)
		if s.ended.Load() {
			return
		}
	}
	h := head{status: st, md: s.trailer}
	if !s.headerSent {
		s.headerSent = true
		h.http, h.subtype = 200, s.req.subtype
	}
	c.putHeadLocked(&h, s.id, true)
	if !s.remoteClosed {
		c.out.settle(h2.AppendNumber(c.out.buf, http2.FrameRSTStream, s.id, uint32(http2.ErrCodeNo)))
	}
	c.business += businessCall
	c.grantConnLocked(connWindow / 4)
	s.running = false
	c.removeLocked(s)
}

// refuseLocked answers a request that is not valid gRPC.
func (c *conn) refuseLocked(stream uint32, r *request, re *refusal, endStream bool) {
	h := head{http: re.http, subtype: r.subtype, status: re.status}
	c.putHeadLocked(&h, stream, true)
	if !endStream {
		c.early.add(stream)
		c.out.settle(h2.AppendNumber(c.out.buf, http2.FrameRSTStream, stream, uint32(http2.ErrCodeNo)))
	}
}

// answer sends the only message of a call and its OK status, in one write if
// the client's windows allow. The last of data may be lent.
func (c *conn) answer(s *call, data mem.BufferSlice, compressed, lent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.sendLocked(s, data, compressed, lent); err != nil {
		return
	}
	if !s.ended.Load() {
		c.finishLocked(s, statusOK)
	}
	c.flushLocked()
}

var statusOK = status.New(codes.OK, "")

// finish ends a call.
func (c *conn) finish(s *call, st *status.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ended.Load() {
		return
	}
	c.finishLocked(s, st)
	c.flushLocked()
}

// send sends one of several messages.
func (c *conn) send(s *call, data mem.BufferSlice, compressed bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.sendLocked(s, data, compressed, false)
	c.flushLocked()
	return err
}
