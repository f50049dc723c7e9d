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
	"runtime"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"shoal/internal/engine"
)

// A Server answers gRPC calls on one listener.
type Server struct {
	opt        Options
	engine     *engine.Engine
	restricted map[Class]Restriction
	log        *slog.Logger
	addr       net.Addr
	grpc       *grpc.Server

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
	s := &Server{opt: opt, engine: e, log: opt.Log, closing: make(chan struct{})}
	var err error
	if s.restricted, err = restrictions(opt.Restricted); err != nil {
		return nil, err
	}
	grpcOptions, err := s.options()
	if err != nil {
		return nil, err
	}
	gzipCodec.level.Store(gzipLevels[opt.Compression])
	s.grpc = grpc.NewServer(grpcOptions...)
	s.grpc.RegisterService(s.serviceDesc(), &service{server: s})
	healthpb.RegisterHealthServer(s.grpc, &health{server: s})
	reflection.Register(s.grpc)
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.addr }

// Close takes no more requests, lets those in flight finish and returns when
// nothing of the server runs any more. When ctx ends first, it ends what is left
// and returns ctx's error.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.closing) })
	graceful := make(chan struct{})
	s.wg.Go(func() {
		s.grpc.GracefulStop()
		close(graceful)
	})
	var err error
	select {
	case <-graceful:
	case <-ctx.Done():
		err = ctx.Err()
		s.grpc.Stop()
	}
	s.wg.Wait()
	return err
}

// Sizes that were measured with tensors of 602 KB on loopback. Windows of a
// fixed size spare the pings by which grpc finds one out: a quarter less
// processor time, with 4 MB no better than 1. The larger read buffer saves system
// calls. A client's headers are a few hundred bytes; 64 KB leaves room for tokens
// and none for a flood.
const (
	window        = 1 << 20
	connWindow    = 4 << 20
	readBuffer    = 128 << 10
	maxHeaderList = 64 << 10
)

// options returns what grpc is told.
func (s *Server) options() ([]grpc.ServerOption, error) {
	o := &s.opt
	workers := o.Workers
	if workers == 0 {
		workers = 4 * runtime.GOMAXPROCS(0)
	}
	list := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		experimental.BufferPool(&buffers),
		grpc.MaxRecvMsgSize(o.MaxMessage),
		grpc.MaxSendMsgSize(o.MaxMessage),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.ConnectionTimeout(o.ConnectionTimeout),
		grpc.NumStreamWorkers(uint32(workers)),
		grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer),
		grpc.UnaryInterceptor(s.intercept),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:                  o.Keepalive.Time,
			Timeout:               o.Keepalive.Timeout,
			MaxConnectionAge:      o.Keepalive.MaxAge,
			MaxConnectionAgeGrace: o.Keepalive.MaxAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             o.Keepalive.MinPingInterval,
			PermitWithoutStream: o.Keepalive.PermitWithoutCalls,
		}),
	}
	if o.MaxStreams > 0 {
		list = append(list, grpc.MaxConcurrentStreams(o.MaxStreams))
	}
	creds, err := o.TLS.credentials()
	if err != nil {
		return nil, err
	}
	if creds != nil {
		list = append(list, grpc.Creds(creds))
	}
	return list, nil
}

// restrictions returns the restriction of each class that has one.
func restrictions(list []Restriction) (map[Class]Restriction, error) {
	by := make(map[Class]Restriction)
	for _, r := range list {
		for _, c := range r.Classes {
			if _, ok := by[c]; ok {
				return nil, fmt.Errorf("gRPC: protocol %q is restricted twice", c)
			}
			by[c] = r
		}
	}
	return by, nil
}
