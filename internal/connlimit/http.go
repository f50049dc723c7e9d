package connlimit

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// HTTP bounds the connections of a net/http server: the server uses Listener
// and ConnState.
type HTTP struct{ limit *Limit[*httpConn] }

// NewHTTP returns a limit of that many connections.
func NewHTTP(limit int) *HTTP { return &HTTP{New(limit, func(*httpConn) {})} }

// Listener returns ln with the limit.
func (h *HTTP) Listener(ln net.Listener) net.Listener { return httpListener{ln, h.limit} }

// ConnState is for http.Server.ConnState.
func (h *HTTP) ConnState(nc net.Conn, state http.ConnState) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, ok := nc.(*httpConn)
	if !ok {
		return
	}
	switch state {
	case http.StateIdle:
		c.idleSince.Store(time.Now().UnixNano())
		c.state.CompareAndSwap(httpBusy, httpIdle)
	case http.StateActive:
		c.state.CompareAndSwap(httpIdle, httpBusy)
	}
}

type httpListener struct {
	net.Listener
	limit *Limit[*httpConn]
}

// Accept implements net.Listener.
func (l httpListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.limit.Accept(l.Listener)
		if err != nil {
			return nil, err
		}
		c := &httpConn{Conn: nc, limit: l.limit}
		c.idleSince.Store(time.Now().UnixNano())
		if l.limit.Add(c) {
			return c, nil
		}
		_ = nc.Close()
	}
}

// idle ⇄ busy; any → closed.
const (
	httpIdle int32 = iota
	httpBusy
	httpClosed
)

type httpConn struct {
	net.Conn
	limit     *Limit[*httpConn]
	state     atomic.Int32
	idleSince atomic.Int64
}

// IdleSince implements Conn.
func (c *httpConn) IdleSince() (int64, bool) {
	return c.idleSince.Load(), c.state.Load() == httpIdle
}

// CloseIdle implements Conn.
func (c *httpConn) CloseIdle() bool {
	if Unread(c.Conn) || !c.state.CompareAndSwap(httpIdle, httpClosed) {
		return false
	}
	_ = c.Conn.Close()
	return true
}

// Close implements net.Conn.
func (c *httpConn) Close() error {
	c.state.Store(httpClosed)
	c.limit.Remove(c)
	return c.Conn.Close()
}
