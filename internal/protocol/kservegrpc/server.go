// Package kservegrpc is the gRPC dialect: the KServe v2 inference service with
// Triton's extensions, the standard health service and reflection. Start
// returns a running server that the caller must Close.
//
// An inference request is not copied on its way in. The codec parses the pieces
// that it arrived in and leaves its tensors there until the batch is gathered;
// the answer is encoded once, before the model's output memory is given back.
package kservegrpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"shoal/internal/engine"
	"shoal/internal/protocol/grpcserver"
)

// A Server answers gRPC calls on one listener.
type Server struct {
	opt     Options
	engine  *engine.Engine
	encoder encoder
	log     *slog.Logger
	addr    net.Addr
	grpc    *grpcserver.Server

	closing chan struct{} // closed when the server begins to close
	once    sync.Once
	wg      sync.WaitGroup // the goroutines of the listener and of streams
}

// Start serves e on l, which it owns from now on.
func Start(opt Options, e *engine.Engine, l net.Listener) *Server {
	s := newServer(opt, e)
	s.addr = l.Addr()
	s.wg.Go(func() {
		if err := s.grpc.Serve(l); err != nil {
			s.log.Error("gRPC listener ended", "address", s.addr.String(), "err", err)
		}
	})
	return s
}

func newServer(opt Options, e *engine.Engine) *Server {
	opt = opt.withDefaults()
	t := opt.Server
	s := &Server{opt: opt, engine: e, encoder: encoder{t.MaxSend, t.Memory}, log: t.Log, closing: make(chan struct{})}
	if opt.TLS != nil {
		t.Credentials = credentials.NewTLS(opt.TLS)
	}
	t.Codec, t.Permit, t.Interceptor = newCodec(t.Memory.Budget()), s.permit, s.intercept
	level.Store(levels[opt.Compression])
	s.grpc = grpcserver.New(t)
	s.grpc.RegisterService(s.serviceDesc(), &service{server: s})
	healthpb.RegisterHealthServer(s.grpc, &health{server: s})
	reflection.Register(s.grpc)
	return s
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.addr }

// InFlight returns how many calls have not been answered.
func (s *Server) InFlight() int { return s.grpc.InFlight() }

// Close accepts no more requests, lets those in flight finish and returns when
// nothing of the server runs any more. When ctx ends first, it closes every
// connection and returns an error at once; an answer that a model is still
// working on is then lost.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.closing) })
	graceful := make(chan struct{})
	s.wg.Go(func() {
		s.grpc.GracefulStop()
		close(graceful)
	})
	select {
	case <-graceful:
	case <-ctx.Done():
		s.grpc.Abort()
		return fmt.Errorf("close gRPC connections with calls in flight: %w", ctx.Err())
	}
	s.wg.Wait()
	return nil
}
