package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// readBuffer holds a small answer whole and a large one in a few reads.
const readBuffer = 256 << 10

// HTTP is a target that speaks HTTP/1.1 with keep-alive, one connection for each
// caller. Every caller sends the same bytes.
type HTTP struct {
	address string
	request []byte
	check   func(body []byte) error
}

// NewHTTP returns a target that posts body to path at address ("host:port"). The
// header lines ("Name: value") are sent besides Host and Content-Length, which
// NewHTTP writes. Check looks at the body of each caller's first answer, which it
// may not keep; it may be nil.
func NewHTTP(address, path string, header []string, body []byte, check func(body []byte) error) *HTTP {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\n", path, address)
	for _, line := range header {
		b.WriteString(line + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	if check == nil {
		check = func([]byte) error { return nil }
	}
	return &HTTP{address: strings.TrimSpace(address), request: b.Bytes(), check: check}
}

// Open connects n callers.
func (t *HTTP) Open(ctx context.Context, n int) ([]Caller, error) {
	callers := make([]Caller, 0, n)
	for range n {
		c := &httpCaller{target: t, buf: make([]byte, readBuffer)}
		if err := c.dial(ctx); err != nil {
			for _, c := range callers {
				err = errors.Join(err, c.Close())
			}
			return nil, err
		}
		callers = append(callers, c)
	}
	return callers, nil
}

// An httpCaller has one connection at a time. Only the caller's own goroutine
// sets conn and reads it without the mutex.
type httpCaller struct {
	target *HTTP
	buf    []byte

	mu     sync.Mutex // protects the fields below
	conn   net.Conn   // nil after an error or an answer that closes it
	closed bool
}

// First makes one request and checks the answer's body.
func (c *httpCaller) First(ctx context.Context) error {
	var body []byte
	h, err := c.exchange(ctx, &body)
	if err != nil {
		return err
	}
	if h.status/100 != 2 {
		return &StatusError{Code: h.status, Body: body}
	}
	return c.target.check(body)
}

// Do makes one request and reads its answer to the end. It connects again when
// the last answer or an error ended the connection.
func (c *httpCaller) Do(ctx context.Context) error {
	h, err := c.exchange(ctx, nil)
	if err != nil {
		return err
	}
	if h.status/100 != 2 {
		return &StatusError{Code: h.status}
	}
	return nil
}

// exchange sends the request and reads the answer, whose body goes to keep
// unless that is nil.
func (c *httpCaller) exchange(ctx context.Context, keep *[]byte) (head, error) {
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return head{}, err
		}
	}
	if _, err := c.conn.Write(c.target.request); err != nil {
		c.hangUp()
		return head{}, err
	}
	h, err := readAnswer(c.conn, c.buf, keep)
	if err != nil || h.close {
		c.hangUp()
	}
	return h, err
}

// readAnswer reads one answer from r, all of it, with buf as its working memory.
// Interim answers (1xx) are passed over.
func readAnswer(r io.Reader, buf []byte, keep *[]byte) (head, error) {
	n := 0 // bytes of buf that are filled
	for {
		h, size, err := readHead(r, buf, &n)
		if err != nil {
			return head{}, err
		}
		n = copy(buf, buf[size:n])
		if h.status/100 == 1 {
			continue
		}
		if int64(n) > h.length {
			return head{}, fmt.Errorf("%w: %d bytes too many", errProtocol, int64(n)-h.length)
		}
		return h, readBody(r, buf, n, h.length, keep)
	}
}

// readHead reads until buf, of which n bytes are filled, begins with a whole
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
		from = max(0, *n-len(headEnd)+1) // the end may be cut in two
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

func (c *httpCaller) dial(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.target.address)
	if err != nil {
		return fmt.Errorf("%w: %w", errConnect, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return net.ErrClosed
	}
	c.conn = conn
	return nil
}

// hangUp ends a connection that cannot be used again.
func (c *httpCaller) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Close()
	c.conn = nil
}

// Close ends the connection; a request that is under way fails.
func (c *httpCaller) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.conn == nil {
		c.closed = true
		return nil
	}
	c.closed = true
	return c.conn.Close()
}
