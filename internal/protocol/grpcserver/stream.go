package grpcserver

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"shoal/internal/reject"
)

// run runs the call's handler and sends its result.
func (c *call) run(w *runner) {
	s := c.conn.server
	defer s.handlers.Done()
	defer c.conn.left(c)
	defer c.message.free() // if the handler did not read it
	if s.opt.Access != nil {
		c.access = c.newAccess()
		defer s.opt.Access.End(c.access)
	}
	if failure := c.req.failure; failure != nil {
		if c.req.encoding != "" && s.methods[c.req.path] != nil {
			c.setTrailer(metadata.Pairs("grpc-accept-encoding", acceptedEncodings()))
		}
		c.finish(failure)
		return
	}
	if c.req.method.unary != nil {
		c.runUnary(w)
		c.end()
		return
	}
	c.finish(c.handleStream())
	c.cut() // goroutines that the handler started may wait
}

func (c *call) runUnary(w *runner) {
	reply, err := c.handleUnary(w)
	if err != nil {
		c.finish(err)
		return
	}
	lender, _ := reply.(Lender)
	if lender != nil {
		defer lender.Sent()
	}
	data, compressed, err := c.encode(reply)
	if err != nil {
		c.finish(err)
		return
	}
	if c.access != nil {
		SetAccessCode(c.access, codes.OK)
		c.access.Bytes = int64(data.Len())
	}
	c.conn.answer(c, data, compressed, !compressed && lender != nil && lender.Lends())
	data.Free()
}

// finish answers a call with the status that its handler returned.
func (c *call) finish(err error) {
	st := statusOf(err)
	if c.access != nil {
		SetAccessCode(c.access, st.Code())
	}
	if reason := reject.ReasonOf(err); reason != reject.None {
		c.conn.rejected(reason, st.Message())
	}
	c.conn.finish(c, st)
}

// handleUnary calls the handler of a call with one message each way.
func (c *call) handleUnary(w *runner) (reply any, err error) {
	defer c.recover(&err)
	m := c.req.method
	return m.unary(m.impl, &c.Caller, w.read, c.conn.server.opt.Interceptor)
}

// handleStream calls the handler of any other call.
func (c *call) handleStream() (err error) {
	defer c.recover(&err)
	m := c.req.method
	return m.stream(m.impl, (*serverStream)(c))
}

// recover turns a panic into an error. It must be deferred.
func (c *call) recover(err *error) {
	if p := recover(); p != nil {
		c.conn.server.opt.Log.Error("gRPC handler panicked", "method", c.req.path, "err", fmt.Errorf("%v\n%s", p, debug.Stack()))
		*err = status.Error(codes.Internal, "internal error; the server's log has the details")
	}
}

// statusOf returns a handler's error as a status.
func statusOf(err error) *status.Status {
	if err == nil {
		return statusOK
	}
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.FromContextError(err)
}

var errHeaderSent = status.Error(codes.Internal, "the header of the answer is sent already")

// setHeader adds to the header of the answer, and sends it if send is set.
func (c *call) setHeader(md metadata.MD, send bool) error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	switch {
	case c.headerSent:
		return errHeaderSent
	case c.ended.Load():
		return errCancelled
	}
	c.header = metadata.Join(c.header, md)
	if send {
		c.conn.headerLocked(c)
		c.conn.flushLocked()
	}
	return nil
}

func (c *call) setTrailer(md metadata.MD) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.trailer = metadata.Join(c.trailer, md)
}

// transportStream is a call in the form of grpc's functions for handlers.
type transportStream call

var _ grpc.ServerTransportStream = (*transportStream)(nil)

// Method implements grpc.ServerTransportStream.
func (s *transportStream) Method() string { return s.req.path }

// SetHeader implements grpc.ServerTransportStream.
func (s *transportStream) SetHeader(md metadata.MD) error { return (*call)(s).setHeader(md, false) }

// SendHeader implements grpc.ServerTransportStream.
func (s *transportStream) SendHeader(md metadata.MD) error { return (*call)(s).setHeader(md, true) }

// SetTrailer implements grpc.ServerTransportStream.
func (s *transportStream) SetTrailer(md metadata.MD) error {
	(*call)(s).setTrailer(md)
	return nil
}

// serverStream is a call in the form of its handler.
type serverStream call

var _ grpc.ServerStream = (*serverStream)(nil)

// Context implements grpc.ServerStream.
func (s *serverStream) Context() context.Context { return &s.Caller }

// SetHeader implements grpc.ServerStream.
func (s *serverStream) SetHeader(md metadata.MD) error { return (*call)(s).setHeader(md, false) }

// SendHeader implements grpc.ServerStream.
func (s *serverStream) SendHeader(md metadata.MD) error { return (*call)(s).setHeader(md, true) }

// SetTrailer implements grpc.ServerStream.
func (s *serverStream) SetTrailer(md metadata.MD) { (*call)(s).setTrailer(md) }

// SendMsg implements grpc.ServerStream.
func (s *serverStream) SendMsg(v any) error {
	c := (*call)(s)
	data, compressed, err := c.encode(v)
	if err != nil {
		return err
	}
	defer data.Free()
	if l, ok := v.(Lender); ok {
		defer l.Sent()
	}
	if c.access != nil {
		c.access.Bytes += int64(data.Len())
	}
	return c.conn.send(c, data, compressed)
}

// RecvMsg implements grpc.ServerStream.
func (s *serverStream) RecvMsg(v any) error {
	c := (*call)(s)
	if c.inbox == nil {
		if c.inErr == nil && !c.message.there {
			return io.EOF
		}
		return c.readOnly(v)
	}
	m, err := c.inbox.next()
	if err != nil {
		return err
	}
	size := int64(prefixLen + m.data.Len())
	err = c.decode(m, v)
	c.consumed(size)
	return err
}

// consumed grants the client as much again as was read.
func (c *call) consumed(n int64) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.unacked += n
	c.conn.business += businessMessage
	if c.conn.grantLocked(c) {
		c.conn.flushLocked()
	}
}
