// Package grpcserver serves gRPC over HTTP/2 at a low cost per call. It
// replaces grpc-go's server and keeps its interfaces: services are registered
// by their grpc.ServiceDesc, handlers get a grpc.ServerStream, and statuses,
// metadata, codecs and compressors are grpc-go's own.
//
// A connection has one goroutine that reads. A call is handed over once, to a
// goroutine that is kept ready: when its request is complete or, if the client
// sends a stream, when its header is. The goroutine that has an answer writes
// it itself, in one piece; others with an answer at the same time leave theirs
// to it. A call takes one allocation here.
//
// New builds a Server, Serve runs it on a listener, GracefulStop and Stop end
// it. All methods may be called from any goroutine, but services must be
// registered before Serve.
package grpcserver

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"shoal/internal/accesslog"
	"shoal/internal/connlimit"
	"shoal/internal/inflight"
	"shoal/internal/reject"
)

// Options are the settings of a server. A zero value means the default.
type Options struct {
	// Codec reads and writes all messages; the default is protobuf's.
	Codec encoding.CodecV2
	// Memory provides memory for messages and bounds what all connections
	// together may hold; the default has no bound.
	Memory *inflight.Pool
	// MaxReceive and MaxSend bound a message, in bytes. There is no default.
	MaxReceive, MaxSend int
	// MaxUnpacked bounds a decompressed message, in bytes. Beyond freeUnpacked
	// it may also be at most MaxRatio times its compressed size. Zero means no
	// bound but MaxReceive.
	MaxUnpacked int64
	MaxRatio    int64
	// MaxConnections bounds the connections; zero means no bound. At the limit
	// a new one replaces one without calls.
	MaxConnections int
	// MaxStreams bounds the calls in flight on a connection; zero means no
	// bound.
	MaxStreams uint32
	// Runners is how many goroutines are kept ready for calls; the default is
	// four per processor.
	Runners int
	// ConnectionTimeout bounds the handshake of a new connection; the default
	// is 20 s.
	ConnectionTimeout time.Duration
	// HeaderTimeout bounds how long a header may take from its first byte on;
	// the default is 10 s.
	HeaderTimeout time.Duration
	// MessageTimeout bounds how long a client may pause within a message, or
	// not read an answer that waits for it, and how slow it may be; the default
	// is 30 s.
	MessageTimeout time.Duration
	// Permit is called for every call to an existing method, when its header
	// has arrived and before a message is read; a status that it returns is the
	// answer. It must depend only on the header: it is called once for calls
	// with the same header. nil permits all.
	Permit func(method string, header func(name string) []string) *status.Status
	// Interceptor intercepts unary calls whose handlers call it; nil for none.
	Interceptor grpc.UnaryServerInterceptor
	// Keepalive and Enforcement have grpc-go's meaning and defaults;
	// MaxConnectionIdle is not used.
	Keepalive   keepalive.ServerParameters
	Enforcement keepalive.EnforcementPolicy
	// Credentials secure connections; nil for none.
	Credentials credentials.TransportCredentials
	// Rejects counts what the server rejects; nil counts nothing.
	Rejects *reject.Counter
	// Access gets an entry for each call; nil for none.
	Access *accesslog.Log
	Log    *slog.Logger // nil logs nothing
}

// withDefaults returns the options with every default filled in.
func (o Options) withDefaults() Options {
	if o.Codec == nil {
		o.Codec = encoding.GetCodecV2(proto.Name)
	}
	o.Runners = cmp.Or(o.Runners, 4*runtime.GOMAXPROCS(0))
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.ConnectionTimeout = cmp.Or(o.ConnectionTimeout, 20*time.Second)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second)
	o.MessageTimeout = cmp.Or(o.MessageTimeout, 30*time.Second)
	o.Keepalive.Time = cmp.Or(o.Keepalive.Time, 2*time.Hour)
	o.Keepalive.Timeout = cmp.Or(o.Keepalive.Timeout, 20*time.Second)
	o.Enforcement.MinTime = cmp.Or(o.Enforcement.MinTime, 5*time.Minute)
	return o
}

// A Server answers gRPC calls.
type Server struct {
	opt      Options
	services map[string]*service
	methods  map[string]*method // by their full name
	runners  runners
	limit    *connlimit.Limit[*conn]
	looking  sync.Mutex     // held while connections are checked
	handlers sync.WaitGroup // running calls, on connections or cut off from them

	mu        sync.Mutex // protects the fields below
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	open      sync.WaitGroup // connections, from before their handshake
	stopped   bool           // takes no more connections
}

// A service is a registered service.
type service struct {
	desc *grpc.ServiceDesc
	impl any
}

// A method is a method of a service.
type method struct {
	name          string // in full
	impl          any
	unary         grpc.MethodHandler // one of the two is set
	stream        grpc.StreamHandler
	clientStreams bool
}

// New returns a server without services.
func New(opt Options) *Server {
	s := &Server{
		opt:       opt.withDefaults(),
		services:  make(map[string]*service),
		methods:   make(map[string]*method),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
	}
	s.runners.max = s.opt.Runners
	limit := s.opt.MaxConnections
	if limit == 0 {
		limit = math.MaxInt
	}
	s.limit = connlimit.New(limit, func(c *conn) { c.closedBy(reject.Evicted, "") })
	return s
}

// RegisterService adds a service. It panics when there is one of that name or
// impl does not implement it. It must not be called once the server serves.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if impl != nil {
		if want := reflect.TypeOf(desc.HandlerType).Elem(); !reflect.TypeOf(impl).Implements(want) {
			panic(fmt.Sprintf("BUG: service %s: %T does not implement %v", desc.ServiceName, impl, want))
		}
	}
	if _, ok := s.services[desc.ServiceName]; ok {
		panic(fmt.Sprintf("BUG: service %s is registered twice", desc.ServiceName))
	}
	s.services[desc.ServiceName] = &service{desc, impl}
	for i := range desc.Methods {
		d := &desc.Methods[i]
		name := "/" + desc.ServiceName + "/" + d.MethodName
		s.methods[name] = &method{name: name, impl: impl, unary: d.Handler}
	}
	for i := range desc.Streams {
		d := &desc.Streams[i]
		name := "/" + desc.ServiceName + "/" + d.StreamName
		s.methods[name] = &method{name: name, impl: impl, stream: d.Handler, clientStreams: d.ClientStreams}
	}
}

// GetServiceInfo returns what is registered, for the reflection service.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := make(map[string]grpc.ServiceInfo, len(s.services))
	for name, svc := range s.services {
		info := grpc.ServiceInfo{Metadata: svc.desc.Metadata}
		for i := range svc.desc.Methods {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: svc.desc.Methods[i].MethodName})
		}
		for i := range svc.desc.Streams {
			d := &svc.desc.Streams[i]
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: d.StreamName, IsClientStream: d.ClientStreams, IsServerStream: d.ServerStreams})
		}
		all[name] = info
	}
	return all
}

// Serve accepts connections on l, which it owns, until the server stops or l
// fails for good. It returns nil when the server was stopped.
func (s *Server) Serve(l net.Listener) error {
	if !s.listen(l) {
		return l.Close()
	}
	defer s.unlisten(l)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(done) })
	defer watching.Wait()
	defer close(done)
	var pause time.Duration
	for {
		nc, err := s.limit.Accept(l)
		if err == nil {
			pause = 0
			s.start(nc)
			continue
		}
		if s.ending() {
			return nil
		}
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return err
		}
		// For example no file descriptor left: one may become free.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) unlisten(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	_ = l.Close()
}

func (s *Server) budget() *inflight.Budget { return s.opt.Memory.Budget() }

func (s *Server) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// start serves a connection on its own goroutine.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	if !s.limit.Add(c) {
		c.closedBy(reject.MaxConnections, fmt.Sprintf("the server has %d connections, as many as it may (--grpc-max-connections)", s.opt.MaxConnections))
		_ = nc.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		s.limit.Remove(c)
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.open.Add(1)
	go func() {
		defer s.forget(c)
		c.serve()
	}()
}

func (s *Server) forget(c *conn) {
	s.limit.Remove(c)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.open.Done()
}

// GracefulStop accepts no more connections and calls, and returns when those in
// flight are over. Stop ends the wait.
func (s *Server) GracefulStop() {
	s.stop(func(c *conn) { c.drain("graceful_stop") })
}

// Stop closes all listeners and connections and returns when no call runs any
// more.
func (s *Server) Stop() {
	s.stop((*conn).end)
}

// Abort closes all listeners and connections like Stop, but returns at once:
// handlers that ignore the end of their context run on, without a client.
func (s *Server) Abort() {
	for _, c := range s.refuse() {
		go c.end() // with TLS, closing may wait for a client that does not read
	}
}

// InFlight returns how many calls have not been answered.
func (s *Server) InFlight() int {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	n := 0
	for _, c := range conns {
		c.mu.Lock()
		n += len(c.streams)
		c.mu.Unlock()
	}
	return n
}

func (s *Server) stop(each func(*conn)) {
	for _, c := range s.refuse() {
		each(c)
	}
	s.open.Wait()
	s.handlers.Wait()
	s.runners.end()
}

// refuse accepts no more connections and returns the open ones.
func (s *Server) refuse() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for l := range s.listeners {
		_ = l.Close()
	}
	return slices.Collect(maps.Keys(s.conns))
}
