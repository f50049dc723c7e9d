// Package kservegrpc is the gRPC front: the KServe v2 inference service with
// Triton's extensions, the standard health service and reflection. Start returns
// a running server that the caller must Close.
//
// An inference request is not copied on its way in. The codec walks over the
// pieces that it arrived in and leaves its tensors there until the batch is
// gathered; the answer is encoded once, before the model's output memory is
// given back.
package kservegrpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
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

// Start serves e on l, which it owns from now on, even when it fails.
func Start(opt Options, e *engine.Engine, l net.Listener) (*Server, error) {
	s, err := newServer(opt, e)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	s.addr = l.Addr()
	s.wg.Go(func() {
		if err := s.grpc.Serve(l); err != nil {
			s.log.Error("gRPC listener ended", "address", s.addr.String(), "err", err)
		}
	})
	return s, nil
}

func newServer(opt Options, e *engine.Engine) (*Server, error) {
	opt = opt.withDefaults()
	s := &Server{opt: opt, engine: e, encoder: encoder{opt.MaxMessage, opt.Memory}, log: opt.Log, closing: make(chan struct{})}
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	gzipCodec.level.Store(gzipLevels[opt.Compression])
	s.grpc = grpcserver.New(transport)
	s.grpc.RegisterService(s.serviceDesc(), &service{server: s})
	healthpb.RegisterHealthServer(s.grpc, &health{server: s})
	reflection.Register(s.grpc)
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.addr }

// InFlight returns how many calls have not been answered.
func (s *Server) InFlight() int { return s.grpc.InFlight() }

// Close takes no more requests, lets those in flight finish and returns when
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

// transport returns what the transport is told.
func (s *Server) transport() (grpcserver.Options, error) {
	o := &s.opt
	creds, err := o.TLS.credentials()
	return grpcserver.Options{
		Codec:             newCodec(o.Memory.Budget()),
		Memory:            o.Memory,
		MaxReceive:        o.MaxMessage,
		MaxUnpacked:       o.MaxUnpacked,
		MaxRatio:          o.MaxRatio,
		MaxSend:           o.MaxMessage,
		MaxConnections:    o.MaxConnections,
		MaxStreams:        o.MaxStreams,
		Workers:           o.Workers,
		ConnectionTimeout: o.ConnectionTimeout,
		HeaderTimeout:     o.HeaderTimeout,
		MessageTimeout:    o.MessageTimeout,
		Permit:            s.permit,
		Interceptor:       s.intercept,
		Keepalive: keepalive.ServerParameters{
			Time:                  o.Keepalive.Time,
			Timeout:               o.Keepalive.Timeout,
			MaxConnectionAge:      o.Keepalive.MaxAge,
			MaxConnectionAgeGrace: o.Keepalive.MaxAgeGrace,
		},
		Enforcement: keepalive.EnforcementPolicy{
			MinTime:             o.Keepalive.MinPingInterval,
			PermitWithoutStream: o.Keepalive.PermitWithoutCalls,
		},
		Credentials: creds,
		Rejects:     o.Rejects,
		Log:         o.Log,
	}, err
}
