package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Server answers HTTP requests on its listeners.
type Server struct {
	opt       Options
	dialect   Dialect
	watch     *watcher
	exchanges sync.Pool // *Exchange
	threads   rotation
	base      context.Context // the parent of the connections' contexts
	cancel    context.CancelFunc

	listeners []net.Listener
	wg        sync.WaitGroup // the accepting goroutines
	closing   atomic.Bool
	drained   chan struct{} // closed when the server is closed and no connection is left

	mu     sync.Mutex // protects the fields below
	conns  map[uint64]*conn
	nextID uint64
	closed bool
}

// Start serves d on the listeners, which become the server's, until Close. TCP
// and Unix sockets will do.
func Start(opt Options, d Dialect, listeners ...net.Listener) (*Server, error) {
	s := &Server{
		opt: opt.WithDefaults(), dialect: d, listeners: listeners,
		drained: make(chan struct{}), conns: make(map[uint64]*conn),
	}
	s.exchanges.New = func() any { return newExchange(s.opt.MaxHeaderSize) }
	s.base, s.cancel = context.WithCancel(context.Background())
	var err error
	if s.watch, err = startWatcher(s.heard); err != nil {
		s.cancel()
		return nil, err
	}
	for _, l := range listeners {
		s.wg.Go(func() { s.accept(l) })
	}
	return s, nil
}

// heard is told by the watcher that a client sends no more, or is gone.
func (s *Server) heard(id uint64, gone bool) {
	switch c := s.find(id); {
	case c == nil:
	case gone:
		c.ctx.Leave()
	default:
		c.half.close()
	}
}

// Close takes no more connections and closes those that bring no request within
// a moment. It lets the others finish theirs, tells their clients that no more
// are taken and returns when all are closed. When ctx ends first,
// it cancels what is queued, closes every connection and returns an error at
// once; an answer that a model is still working on is then lost.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Store(true)
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	open := s.shut()
	last := time.AfterFunc(lastRequestTime, func() {
		for _, c := range open {
			c.kill(true)
		}
	})
	defer last.Stop()
	select {
	case <-s.drained:
	case <-ctx.Done():
		for _, c := range open {
			c.kill(false)
		}
		errs = append(errs, fmt.Errorf("close HTTP connections with requests in flight: %w", ctx.Err()))
	}
	s.cancel()
	s.wg.Wait()
	s.watch.Close()
	return errors.Join(errs...)
}

// InFlight returns how many connections have a request that was not answered.
func (s *Server) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.conns {
		if c.state.Load() == connBusy {
			n++
		}
	}
	return n
}

// Connections returns how many connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// shut refuses further connections and returns those that are open.
func (s *Server) shut() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		open = append(open, c)
	}
	if !s.closed {
		s.closed = true
		if len(open) == 0 {
			close(s.drained)
		}
	}
	return open
}
