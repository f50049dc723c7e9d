package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/keepalive"

	"shoal/internal/backend/cuda"
	"shoal/internal/connlimit"
	"shoal/internal/engine"
	"shoal/internal/metrics"
	"shoal/internal/protocol/grpcserver"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/protocol/kserve"
	"shoal/internal/protocol/kservegrpc"
	"shoal/internal/protocol/kservehttp"
)

// startServices opens every endpoint before it serves any, so that a port that
// is taken ends the start before a model is loaded.
func (f *serveFlags) startServices(l *life, e *engine.Engine) error {
	f.fitDescriptors(l.log)
	type step struct {
		wanted bool
		at     endpoint
		start  func(*life, *engine.Engine, net.Listener) (service, error)
	}
	steps := []step{
		{f.http.allow, f.http.endpoint(), f.startHTTP},
		{f.grpc.allow, f.grpc.endpoint(), f.startGRPC},
		{f.sessions.socket != "", f.sessions.endpoint(), f.startSessions},
		{f.metrics.allow, f.metrics.endpoint(f.http.address), f.startMetrics},
	}
	if f.registry != nil {
		for _, ml := range f.registry.listeners() {
			steps = append(steps, step{true, ml.endpoint(), func(l *life, _ *engine.Engine, ln net.Listener) (service, error) {
				return f.registry.start(f, ml, l, ln)
			}})
		}
	}
	listeners := make([]net.Listener, len(steps))
	closeAll := func() {
		for _, ln := range listeners {
			if ln != nil {
				_ = ln.Close()
			}
		}
	}
	for i, s := range steps {
		if !s.wanted {
			continue
		}
		ln, err := s.at.listen(context.Background())
		if err != nil {
			closeAll()
			return err
		}
		listeners[i] = ln
	}
	for i, s := range steps {
		if !s.wanted {
			continue
		}
		address := listeners[i].Addr().String()
		service, err := s.start(l, e, listeners[i])
		listeners[i] = nil // the service owns it
		if err != nil {
			closeAll()
			return err
		}
		l.services = append(l.services, service)
		l.addresses[service.protocol] = address
		l.log.Info("listening", "protocol", service.protocol, "address", address)
	}
	return f.startPprof(l)
}

func (f *httpFlags) endpoint() endpoint {
	return endpoint{protocol: "http", address: f.address, port: f.port, reuse: f.reuse, addrFlag: "--http-address", portFlag: "--http-port"}
}

func (f *grpcFlags) endpoint() endpoint {
	return endpoint{protocol: "grpc", address: f.address, port: f.port, reuse: f.reuse, addrFlag: "--grpc-address", portFlag: "--grpc-port"}
}

// endpoint returns where metrics are served: on HTTP's host, but not on its
// Unix socket.
func (f *metricsFlags) endpoint(httpAddress string) endpoint {
	address := f.address
	if address == "" {
		address = httpAddress
		if strings.HasPrefix(address, unixPrefix) {
			address = "127.0.0.1"
		}
	}
	return endpoint{protocol: "metrics", address: address, port: f.port, addrFlag: "--metrics-address", portFlag: "--metrics-port"}
}

// options returns the options of the flags, or all their errors at once.
func (h *httpFlags) options() (kservehttp.Options, error) {
	opt := kservehttp.Options{
		MaxInputSize: h.maxInput,
		Server: httpserver.Options{
			MaxBodySize: h.maxBody, MaxHeaderSize: h.maxHeader, MaxConnections: h.maxConnections,
			IdleTimeout: seconds(h.idleTimeout), HeaderTimeout: seconds(h.headerTimeout), StallTimeout: seconds(h.bodyTimeout),
		},
	}
	var errs []error
	var err error
	if opt.Forward, err = pattern("--http-header-forward-pattern", h.forward); err != nil {
		errs = append(errs, err)
	}
	if opt.Restrictions, err = kserve.ParseRestrictions(h.restricted); err != nil {
		errs = append(errs, fmt.Errorf("--http-restricted-api: %w", err))
	}
	return opt, errors.Join(errs...)
}

func (f *serveFlags) startHTTP(l *life, e *engine.Engine, ln net.Listener) (service, error) {
	opt, err := f.http.options()
	if err != nil {
		_ = ln.Close()
		return service{}, err
	}
	o := &opt.Server
	if o.TLS, err = f.http.secure.config("http/1.1", l.log); err != nil {
		_ = ln.Close()
		return service{}, err
	}
	o.Rejects, o.Log, o.Access = f.rejects, l.log, f.access
	o.Memory, o.MaxRatio = l.memory, int64(f.memory.ratio)
	o.MaxConnections = connections(o.MaxConnections, o.ConnMemory(), l.memory.Budget())
	s, err := kservehttp.Start(opt, e, ln)
	if err != nil {
		return service{}, err
	}
	return service{"http", s.Close, s.InFlight}, nil
}

// options returns the options of the flags, or all their errors at once.
func (g *grpcFlags) options() (kservegrpc.Options, error) {
	opt := kservegrpc.Options{Server: grpcserver.Options{
		MaxReceive: g.maxMessage, MaxSend: g.maxMessage, MaxConnections: g.maxConnections, MaxStreams: uint32(g.maxStreams),
		ConnectionTimeout: seconds(g.headerTimeout), HeaderTimeout: seconds(g.headerTimeout), MessageTimeout: seconds(g.messageTimeout),
		Keepalive: keepalive.ServerParameters{
			Time: millis(g.keepalive), Timeout: millis(g.keepaliveWait),
			MaxConnectionAge: millis(g.maxAge), MaxConnectionAgeGrace: millis(g.maxAgeGrace),
		},
		Enforcement: keepalive.EnforcementPolicy{MinTime: millis(g.minPing), PermitWithoutStream: g.permitNoCalls},
	}}
	var errs []error
	var err error
	if opt.Compression, err = kservegrpc.ParseCompression(g.compression); err != nil {
		errs = append(errs, fmt.Errorf("--grpc-infer-response-compression-level: %w", err))
	}
	if opt.Restrictions, err = kserve.ParseRestrictions(g.restricted); err != nil {
		errs = append(errs, fmt.Errorf("--grpc-restricted-protocol: %w", err))
	}
	if opt.ForwardHeaders, err = pattern("--grpc-header-forward-pattern", g.forward); err != nil {
		errs = append(errs, err)
	}
	return opt, errors.Join(errs...)
}

func (f *serveFlags) startGRPC(l *life, e *engine.Engine, ln net.Listener) (service, error) {
	opt, err := f.grpc.options()
	if err != nil {
		_ = ln.Close()
		return service{}, err
	}
	if opt.TLS, err = f.grpc.secure.config("h2", l.log); err != nil {
		_ = ln.Close()
		return service{}, err
	}
	o := &opt.Server
	o.Rejects, o.Log, o.Memory, o.Access = f.rejects, l.log, l.memory, f.access
	o.MaxUnpacked, o.MaxRatio = f.memory.decompressed, int64(f.memory.ratio)
	o.MaxConnections = connections(o.MaxConnections, grpcserver.ConnMemory, l.memory.Budget())
	s := kservegrpc.Start(opt, e, ln)
	return service{"grpc", s.Close, s.InFlight}, nil
}

// pattern compiles the regular expression of a flag; an empty one is nil.
func pattern(flag, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return re, nil
}

func millis(n int) time.Duration  { return time.Duration(n) * time.Millisecond }
func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func (f *serveFlags) startMetrics(l *life, e *engine.Engine, ln net.Listener) (service, error) {
	secure, err := f.metrics.secure.config("http/1.1", l.log)
	if err != nil {
		_ = ln.Close()
		return service{}, err
	}
	var sessions metrics.Sessions // nil, not a nil server, when they are off
	if f.sessions.server != nil {
		sessions = f.sessions.server
	}
	var gpus func() ([]cuda.Usage, error)
	if f.metrics.gpu {
		gpus = cuda.Usages
	}
	m := metrics.Start(metrics.Options{
		GPUs:     gpus,
		Cache:    e.Cache(),
		Sessions: sessions,
		Settings: f.metrics.settings, CPU: f.metrics.cpu, Log: l.log, User: &f.userMetrics,
		Rejects: f.rejects, LogDropped: f.dropped, TraceDropped: f.traceDropped, Memory: l.memory.Budget(),
		Interval: time.Duration(f.metrics.interval * float64(time.Millisecond)),
	}, e)
	closing := make(chan struct{})
	limit := connlimit.NewHTTP(metricsConnections)
	s := &http.Server{
		Handler: withArrivals(&f.tap, m, closing), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		ConnState: limit.ConnState,
	}
	s.RegisterOnShutdown(func() { close(closing) }) // readers of arrivals would keep it open
	ln = limit.Listener(ln)
	if secure != nil {
		ln = tls.NewListener(ln, secure)
		// Probes of the port are failed handshakes.
		s.ErrorLog = slog.NewLogLogger(l.log.Handler(), slog.LevelDebug)
	}
	l.serve("metrics", s, ln)
	return service{protocol: "metrics", close: func(ctx context.Context) error {
		defer m.Close()
		return s.Shutdown(ctx)
	}}, nil
}

// startPprof serves profiles of the process, if --pprof-address is given.
func (f *serveFlags) startPprof(l *life) error {
	if f.pprof == "" {
		return nil
	}
	ln, err := net.Listen("tcp", f.pprof)
	if err != nil {
		return fmt.Errorf("cannot listen on the address given by --pprof-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	l.serve("pprof", s, ln)
	l.services = append(l.services, service{protocol: "pprof", close: func(context.Context) error { return s.Close() }})
	l.log.Info("listening", "protocol", "pprof", "address", ln.Addr().String())
	return nil
}

// serve runs a net/http server until its service is closed.
func (l *life) serve(protocol string, s *http.Server, ln net.Listener) {
	if s.ErrorLog == nil {
		s.ErrorLog = slog.NewLogLogger(l.log.Handler(), slog.LevelWarn)
	}
	go func() {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			l.broken <- fmt.Errorf("serving %s: %w", protocol, err)
		}
	}()
}
