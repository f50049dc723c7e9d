package httpserver

import (
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	"shoal/internal/connlimit"
	"shoal/internal/infer"
	"shoal/internal/reject"
)

// A Limit bounds the connections of the servers that share it.
type Limit struct {
	max   int
	conns *connlimit.Limit[*conn]
}

// NewLimit returns a limit of that many connections.
func NewLimit(n int) *Limit {
	return &Limit{n, connlimit.New(n, func(c *conn) { c.closedBy(reject.Evicted) })}
}

// accept serves every connection of l, each on its own goroutine, until l is
// closed. It retries after a temporary failure, such as a lack of file
// descriptors.
func (s *Server) accept(l net.Listener) {
	pause := 5 * time.Millisecond
	for {
		nc, err := s.opt.Limit.conns.Accept(l)
		if err == nil {
			pause = 5 * time.Millisecond
			if c := s.admit(nc); c != nil {
				go s.serve(c) // Close waits for the connections
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) || s.closing.Load() {
			return
		}
		s.opt.Log.Warn("accept a connection", "err", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-s.base.Done():
			return
		}
		pause = min(2*pause, time.Second)
	}
}

// serve answers the requests on c until it is closed.
func (s *Server) serve(c *conn) {
	defer s.forget(c)
	budget := s.opt.Memory.Budget()
	size := s.opt.ConnMemory()
	budget.Force(size)
	defer budget.Release(size)
	budget.Register(c)
	defer budget.Unregister(c)
	c.claim = budget.Claim()
	defer c.claim.Release()
	if !c.secure() {
		c.kill(false)
		return
	}
	c.x = s.exchanges.Get().(*Exchange)
	c.x.bind(c)
	for n := 1; c.x.next(); n++ {
		if n%rotateEvery == 0 {
			s.threads.turn()
		}
	}
	// The reasons for a connection's end are reported where they are known.
	_ = c.x.out.Flush()
	c.end()
	c.x.bind(nil)
	s.exchanges.Put(c.x)
}

// admit adds a connection to the server, or turns it away.
func (s *Server) admit(nc net.Conn) *conn {
	c := &conn{Conn: nc, socket: nc, server: s}
	if s.opt.TLS != nil {
		c.Conn = tls.Server(nc, s.opt.TLS)
	}
	c.half.conn = c
	c.ctx = infer.NewCaller(s.base)
	c.idleSince.Store(time.Now().UnixNano())
	full := !s.opt.Limit.conns.Add(c)
	s.mu.Lock()
	if full || s.closed {
		s.mu.Unlock()
		s.opt.Limit.conns.Remove(c)
		c.ctx.Leave()
		if full {
			s.turnAway(nc)
		}
		nc.Close()
		return nil
	}
	s.nextID++
	c.id = s.nextID
	s.conns[c.id] = c
	s.mu.Unlock()
	s.watch.add(c)
	return c
}

// turnAway answers a client whose connection is not accepted. Its request is
// not read.
func (s *Server) turnAway(nc net.Conn) {
	full := &Error{Status: 503, Text: "the server has " + strconv.Itoa(s.opt.Limit.max) +
		" connections, as many as it may; try again later, or raise --http-max-connections and the limit of open files"}
	s.opt.Rejects.Closed(reject.HTTP, reject.MaxConnections, nc.RemoteAddr(), full.Text)
	if s.opt.TLS != nil {
		return // a handshake costs more than the client may have
	}
	x := Exchange{}
	x.answer.fail(s.dialect, full)
	nc.SetWriteDeadline(time.Now().Add(time.Second))
	nc.Write(append(x.appendHead(nil, false), x.answer.body...))
}

// forget removes a closed connection.
func (s *Server) forget(c *conn) {
	s.opt.Limit.conns.Remove(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if s.closed && len(s.conns) == 0 {
		close(s.drained)
	}
}

// find returns the connection with that number, nil when it is closed.
func (s *Server) find(id uint64) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}
