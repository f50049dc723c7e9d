package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"shoal/internal/client"
)

// A lazyConn is a network connection that is made when it is first needed, and
// again after hangUp. Only the goroutine that makes exchanges sets conn, and
// may read it without the mutex.
type lazyConn struct {
	mu     sync.Mutex // protects the fields below
	conn   net.Conn   // nil before the first use and after hangUp
	closed bool
}

// connect dials unless there is a connection, and reports whether it did.
func (l *lazyConn) connect(dial func() (net.Conn, error)) (dialled bool, err error) {
	if l.conn != nil {
		return false, nil
	}
	conn, err := dial()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errConnect, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return false, net.ErrClosed
	}
	l.conn = conn
	return true, nil
}

// dial connects to an address, over TLS unless config is nil.
func dial(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return client.Dial(ctx, address)
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
}

// hangUp closes a connection that cannot be used again.
func (l *lazyConn) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
	}
	l.conn = nil
}

// Close closes the connection; an exchange in flight fails.
func (l *lazyConn) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.conn == nil {
		l.closed = true
		return nil
	}
	l.closed = true
	return l.conn.Close()
}
