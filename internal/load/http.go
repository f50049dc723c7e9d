package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"shoal/internal/client"
)

// A connection's buffer holds a small answer. It grows on connections with
// large answers: hundreds of idle connections should use little memory, and a
// large answer should need few reads.
const (
	smallBuffer = 2 * maxHead
	readBuffer  = 256 << 10
)

// An HTTPLink speaks HTTP/1.1 with keep-alive, one exchange at a time on each
// connection.
type HTTPLink struct {
	address string
	tls     *tls.Config
}

// NewHTTPLink returns a link to address ("host:port"), over TLS unless config is
// nil.
func NewHTTPLink(address string, config *tls.Config) *HTTPLink {
	return &HTTPLink{address: strings.TrimSpace(address), tls: config}
}

// Message returns a POST of body to path. Message adds Host and Content-Length
// to the header.
func (l *HTTPLink) Message(path string, header []client.Header, body []byte) *Message {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\n", path, client.HostOf(l.address))
	for _, h := range header {
		b.WriteString(h.Name + ": " + h.Value + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	m := &Message{wire: b.Bytes()}
	m.hole = client.FindSequence(m.wire)
	return m
}

// Conns returns n connections.
func (l *HTTPLink) Conns(n int) ([]Conn, error) {
	conns := make([]Conn, n)
	for i := range conns {
		conns[i] = &httpConn{link: l}
	}
	return conns, nil
}

// An httpConn makes one exchange at a time over its connection.
type httpConn struct {
	link *HTTPLink
	buf  []byte
	head []byte // of a request that was filled in

	use  sync.Mutex    // held by an exchange
	last time.Duration // when it ended
	lazyConn
}

// Do makes one exchange. An answer that is an HTTP error is a *StatusError.
func (c *httpConn) Do(ctx context.Context, m *Message, x *Exchange) error {
	c.use.Lock()
	defer c.use.Unlock()
	x.begin()
	if c.conn != nil && x.Start-c.last > pollIdleAfter {
		c.pollIdle()
	}
	err := c.exchange(ctx, m, x)
	x.Done = Now()
	c.last = x.Done
	return err
}

func (c *httpConn) exchange(ctx context.Context, m *Message, x *Exchange) error {
	if c.conn == nil {
		if err := c.Connect(ctx); err != nil {
			return err
		}
	}
	if err := c.write(m, x.Sequence); err != nil {
		c.hangUp()
		return err
	}
	x.Sent = Now()
	n, err := c.conn.Read(c.buf)
	x.First = Now()
	if n == 0 && err != nil {
		c.hangUp()
		return err
	}
	var keep *[]byte
	if x.Keep {
		keep = &x.Answer
	}
	h, said, err := readAnswer(c.conn, c.buf, n, keep)
	if err != nil || h.close {
		c.hangUp()
	}
	if h.length > int64(len(c.buf)) && len(c.buf) < readBuffer {
		c.buf = make([]byte, readBuffer)
	}
	if err == nil && h.status/100 != 2 {
		return &StatusError{Code: h.status, Body: said}
	}
	return err
}

// write sends a request, with its sequence filled in if it has one.
func (c *httpConn) write(m *Message, s client.Sequence) error {
	if s.ID == 0 || m.hole == 0 {
		_, err := c.conn.Write(m.wire)
		return err
	}
	end := m.hole + client.SequenceSize
	c.head = append(append(c.head[:0], m.wire[:m.hole]...), s.AppendJSON(nil)...)
	rest := net.Buffers{c.head, m.wire[end:]}
	_, err := rest.WriteTo(c.conn)
	return err
}

// readAnswer reads one answer from r. It uses buf, of which n bytes are filled.
// It stores the body in keep unless that is nil, and returns the body of an
// error. It skips interim answers (1xx).
func readAnswer(r io.Reader, buf []byte, n int, keep *[]byte) (h head, said []byte, err error) {
	for {
		var size int
		if h, size, err = readHead(r, buf, &n); err != nil {
			return head{}, nil, err
		}
		n = copy(buf, buf[size:n])
		if h.status/100 == 1 {
			continue
		}
		if int64(n) > h.length {
			return head{}, nil, fmt.Errorf("%w: %d bytes too many", errProtocol, int64(n)-h.length)
		}
		if h.status/100 != 2 {
			keep = &said
		}
		err = readBody(r, buf, n, h.length, keep)
		return h, said, err
	}
}

// readHead reads until buf, of which n bytes are filled, begins with a complete
// head, and returns it and its size.
func readHead(r io.Reader, buf []byte, n *int) (head, int, error) {
	for from := 0; ; {
		if i := bytes.Index(buf[from:*n], headEnd); i >= 0 {
			size := from + i + len(headEnd)
			h, err := parseHead(buf[:size])
			return h, size, err
		}
		if *n >= maxHead {
			return head{}, 0, fmt.Errorf("%w: a head of more than %d bytes", errProtocol, maxHead)
		}
		from = max(0, *n-len(headEnd)+1) // the end may be split between two reads
		got, err := r.Read(buf[*n:])
		if *n += got; got == 0 && err != nil {
			return head{}, 0, err
		}
	}
}

// readBody reads a body of length bytes, of which the first n are in buf.
func readBody(r io.Reader, buf []byte, n int, length int64, keep *[]byte) error {
	for {
		if keep != nil {
			*keep = append(*keep, buf[:n]...)
		}
		if length -= int64(n); length == 0 {
			return nil
		}
		got, err := r.Read(buf[:min(int64(len(buf)), length)])
		if got == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		n = got
	}
}

// Connect dials, with a handshake over TLS.
func (c *httpConn) Connect(ctx context.Context) error {
	if c.buf == nil {
		c.buf = make([]byte, smallBuffer)
	}
	_, err := c.connect(func() (net.Conn, error) { return dial(ctx, c.link.address, c.link.tls) })
	return err
}
