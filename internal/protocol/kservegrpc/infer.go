package kservegrpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"

	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/protocol/grpcserver"
	"shoal/internal/protocol/kserve"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// modelInfer handles a ModelInfer call. It replaces the generated handler,
// which would copy the message.
func (s *Server) modelInfer(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (_ any, err error) {
	defer s.finish("ModelInfer", &err)
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	since := s.traceStart()
	m := newMessage()
	if err := read(m); err != nil {
		m.release()
		return nil, err
	}
	s.compress(ctx)
	if s.opt.Server.Access != nil {
		m.access = grpcserver.Access(ctx)
	}
	return s.infer(ctx, m, since)
}

// infer answers a message that was awaited since then. It releases it, or its answer
// does.
func (s *Server) infer(ctx context.Context, m *message, since time.Time) (out *encoded, err error) {
	defer func() {
		if out == nil {
			m.trace.Fail(err)
			m.trace.End()
		}
		m.access.Ran(m.req)
		if out == nil || !out.Lends() {
			m.release()
		}
	}()
	defer func() {
		if err != nil {
			s.rejected(ctx, m.model, m.version, err)
		}
	}()
	defer catch(&err)
	v, err := s.version(m)
	if err != nil {
		return nil, err
	}
	if v.Decoupled() {
		return nil, status.Rejectf(reject.Unsupported, status.Unsupported, "ModelInfer RPC doesn't support models with decoupled transaction policy")
	}
	if !since.IsZero() {
		s.trace(ctx, m, since)
	}
	if err := s.fill(ctx, m); err != nil {
		return nil, err
	}
	if err := v.Infer(ctx, m.req); err != nil {
		return nil, err
	}
	if out, err = s.encoder.answer(m); err == nil && m.trace != nil {
		out.trace = m.trace
		out.trace.Sending()
	}
	return out, err
}

// version finds a message's version. The message's request holds a lease on it.
func (s *Server) version(m *message) (*engine.Version, error) {
	n, err := parseVersion(m.version)
	if err != nil {
		return nil, status.Reject(reject.BadInput, err)
	}
	m.req.Model, m.req.Version = m.model, n
	if m.access != nil {
		m.access.Model(m.model, n)
		m.req.Spent = &m.access.Spent
	}
	lease, err := s.engine.Acquire(m.model, n)
	if err != nil {
		return nil, err
	}
	if m.access != nil {
		m.access.Model(m.model, lease.Number())
	}
	m.req.Hold(lease)
	return lease.Version, nil
}

// fill converts a message to its request.
func (s *Server) fill(ctx context.Context, m *message) error {
	if s.opt.ForwardHeaders != nil {
		if err := s.forward(ctx, m); err != nil {
			return status.Reject(reject.BadInput, err)
		}
	}
	return status.Reject(reject.BadInput, m.fill(s.engine.SharedMemory()))
}

// forward passes the metadata that the operator chose to the model.
func (s *Server) forward(ctx context.Context, m *message) error {
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		if len(values) == 0 || !s.opt.ForwardHeaders.MatchString(name) {
			continue
		}
		if err := kserve.CheckForward(name); err != nil {
			return err
		}
		m.req.Params = append(m.req.Params, infer.Param{Name: name, Kind: infer.ParamString, String: values[0]})
	}
	return nil
}

// compress chooses the compression of the answer: the operator's. By default
// the transport would use the request's.
func (s *Server) compress(ctx context.Context) {
	name := encoding.Identity
	if s.opt.Compression != CompressNone && grpcserver.ClientAccepts(ctx, gzipName) {
		name = gzipName
	}
	if name == encoding.Identity && grpcserver.RequestCompressor(ctx) == "" {
		return
	}
	_ = grpcserver.SetSendCompressor(ctx, name) // only fails when the client is gone
}
