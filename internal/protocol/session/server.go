package session

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/engine"
	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/status"
	"shoal/internal/trace"
)

// Options are the settings of a server.
type Options struct {
	// MaxSessions is how many clients may be connected.
	MaxSessions int
	// MaxBytes is how much memory one session may have.
	MaxBytes int64
	// Users are the users that may connect, besides root and the user of this
	// process; AnyUser lets all in whom the socket's permissions do.
	Users   []int
	AnyUser bool

	Memory  *inflight.Budget
	Rejects *reject.Counter
	Log     *slog.Logger
}

// An Engine gives leases on models, and says which calls are traced.
type Engine interface {
	Acquire(name string, version int64) (engine.Lease, error)
	Tracer() *trace.Tracer
}

// A Server serves the clients of one socket.
type Server struct {
	opt      Options
	engine   Engine
	listener *net.UnixListener
	cores    int
	wg       sync.WaitGroup

	// polls is true while a goroutine polls a ring: one core at most does that.
	polls    atomic.Bool
	inFlight atomic.Int64
	bytes    atomic.Int64 // of shared memory
	closing  atomic.Bool  // set under the mutex

	mu       sync.Mutex // protects the fields below
	sessions map[*session]struct{}
	idle     chan struct{} // closed when closing and no call is in flight
}

// helloTime is how long a client may take for its first message.
const helloTime = 10 * time.Second

// Start serves the clients that connect to ln, a Unix socket of the type
// "unixpacket", which the server then owns.
func Start(opt Options, e Engine, ln *net.UnixListener) *Server {
	s := &Server{opt: opt, engine: e, listener: ln, cores: runtime.NumCPU(), sessions: make(map[*session]struct{}), idle: make(chan struct{})}
	s.wg.Go(s.accept)
	return s
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.opt.Log.Warn("accepting a session", "err", err)
			time.Sleep(10 * time.Millisecond) // no descriptors are left: one may be closed meanwhile
			continue
		}
		s.wg.Go(func() { s.serve(c) })
	}
}

// serve serves one client until it has gone.
func (s *Server) serve(c *net.UnixConn) {
	defer c.Close()
	x, err := s.open(c)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer x.close()
	if err := x.control(); err != nil {
		s.opt.Log.Debug("a session ended", "model", x.model, "pid", x.pid, "err", err)
	}
}

// open reads a client's first message and makes its session.
func (s *Server) open(c *net.UnixConn) (*session, error) {
	uid, pid, err := peer(c)
	if err != nil {
		return nil, status.Wrap(status.Internal, err, "the server cannot tell who connects")
	}
	if !s.allowed(uid) {
		return nil, status.Rejectf(reject.Restricted, status.PermissionDenied, "user %d may not open a session; allow it with --session-users", uid)
	}
	_ = c.SetReadDeadline(time.Now().Add(helloTime))
	b := make([]byte, maxMessage)
	n, err := c.Read(b)
	if err != nil || n == len(b) {
		return nil, status.Rejectf(reject.Malformed, status.InvalidArgument, "the first message of a session did not come")
	}
	h, err := parseHello(b[:n])
	if err != nil {
		return nil, status.Rejectf(reject.Malformed, status.InvalidArgument, "the first message of a session cannot be read")
	}
	if h.protocol != protocolVersion {
		return nil, status.Rejectf(reject.Unsupported, status.Unsupported, "the client speaks version %d of sessions and the server version %d; install both of one version", h.protocol, protocolVersion)
	}
	_ = c.SetReadDeadline(time.Time{})
	lease, err := s.engine.Acquire(h.model, h.version)
	if err != nil {
		s.reject(c, h.model, h.version, err)
		return nil, err
	}
	defer lease.Release()
	if lease.Decoupled() {
		return nil, status.Rejectf(reject.Unsupported, status.Unsupported, "model '%s' is decoupled: it may answer a request any number of times; use a gRPC stream or generate_stream", h.model)
	}
	x := &session{server: s, conn: c, model: h.model, version: h.version, pid: pid, done: make(chan struct{}), work: make(chan *slot)}
	x.claim = s.opt.Memory.Claim()
	if err := s.add(x); err != nil {
		return nil, err
	}
	if err := x.welcome(lease.Version); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// allowed reports whether a user may connect.
func (s *Server) allowed(uid int) bool {
	return s.opt.AnyUser || uid == 0 || uid == os.Geteuid() || slices.Contains(s.opt.Users, uid)
}

func (s *Server) add(x *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing.Load():
		return status.Rejectf(reject.NotReady, status.Unavailable, "Server exiting")
	case len(s.sessions) >= s.opt.MaxSessions:
		return status.Rejectf(reject.Overloaded, status.ResourceExhausted, "%d sessions are open, which is the most; close some or raise --session-max-sessions", len(s.sessions))
	}
	s.sessions[x] = struct{}{}
	return nil
}

func (s *Server) remove(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x)
}

// refuse tells a client why it gets no session.
func (s *Server) refuse(c *net.UnixConn, err error) {
	var known *status.Error
	if errors.As(err, &known) && known.Cause != nil {
		s.opt.Log.Error("a session could not be opened", "err", err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeTime))
	_, _ = c.Write(refusal(0, err)) // a client that is gone need not know
}

func refusal(slot uint32, err error) []byte {
	b := le.AppendUint32(nil, msgRefused)
	b = le.AppendUint32(b, slot)
	b = le.AppendUint32(b, uint32(status.CodeOf(err)))
	text := status.Public(err)
	return append(b, text[:min(len(text), maxText)]...)
}

// reject reports a request that did not reach a model.
func (s *Server) reject(c *net.UnixConn, model string, version int64, err error) {
	s.opt.Rejects.Request(reject.Request{
		Protocol: reject.Session, Client: c.RemoteAddr(), Model: model, Version: version, Reason: reject.ReasonOf(err), Text: status.Public(err),
	})
}

// InFlight returns how many calls have no answer yet.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

// Sessions returns how many sessions are open.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Bytes returns how much memory the server shares with clients.
func (s *Server) Bytes() int64 { return s.bytes.Load() }

// Close takes no more clients, lets the calls in flight finish until ctx ends,
// and closes the sessions. It returns when all are closed.
func (s *Server) Close(ctx context.Context) error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closing.Store(true)
	s.mu.Unlock()
	s.ended(0)
	select {
	case <-s.idle:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	s.mu.Lock()
	for x := range s.sessions {
		_ = x.conn.Close() // its goroutine sees it
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

// began and ended count calls in flight.
func (s *Server) began() { s.inFlight.Add(1) }

func (s *Server) ended(n int64) {
	if s.inFlight.Add(-n) > 0 || !s.closing.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight.Load() == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}
