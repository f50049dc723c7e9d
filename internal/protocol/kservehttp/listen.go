package kservehttp

import (
	"errors"
	"net"
	"strconv"
	"time"

	"shoal/internal/infer"
	"shoal/internal/reject"
)

// accept serves every connection that l takes, each by a goroutine of its own,
// until l is closed. A failure that may pass, such as a lack of file
// descriptors, is waited out.
func (s *Server) accept(l net.Listener) {
	pause := 5 * time.Millisecond
	for {
		nc, err := s.limit.Accept(l)
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
	_ = s.http.ServeConn(c) // what matters of its end is reported where it is known
}

// admit makes a connection one of the server's, or turns it away.
func (s *Server) admit(nc net.Conn) *conn {
	c := &conn{Conn: nc, server: s}
	c.half.conn = c
	c.ctx = infer.NewCaller(s.base)
	c.idleSince.Store(time.Now().UnixNano())
	full := !s.limit.Add(c)
	s.mu.Lock()
	if full || s.closed {
		s.mu.Unlock()
		s.limit.Remove(c)
		c.ctx.Leave()
		if full {
			s.turnAway(nc, reject.MaxConnections, "the server has "+strconv.Itoa(s.opt.MaxConnections)+
				" connections, as many as it may; try again later, or raise --http-max-connections and the limit of open files")
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

// turnAway answers a client whose connection is not taken. Its request is not
// read.
func (s *Server) turnAway(nc net.Conn, why reject.Close, text string) {
	s.opt.Rejects.Closed(reject.HTTP, why, nc.RemoteAddr(), text)
	body := appendError(nil, text)
	head := "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	nc.SetWriteDeadline(time.Now().Add(time.Second))
	nc.Write(append([]byte(head), body...))
}

// forget drops a connection that is closed.
func (s *Server) forget(c *conn) {
	s.limit.Remove(c)
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
