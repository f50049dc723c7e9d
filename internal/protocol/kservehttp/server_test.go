package kservehttp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"shoal/internal/engine"
	"shoal/internal/inflight"
	"shoal/internal/protocol/httpserver"
)

// start returns the address of a server over e that ends with the test.
func start(t testing.TB, e *engine.Engine, opt Options) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	startOn(t, e, opt, l)
	return l.Addr().String()
}

// startOn starts a server that ends with the test.
func startOn(t testing.TB, e *engine.Engine, opt Options, l net.Listener) *httpserver.Server {
	t.Helper()
	if opt.Server.Memory == nil {
		opt.Server.Memory = inflight.NewPool(inflight.New(1<<40, 0))
	}
	s, err := Start(opt, e, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if n := s.Connections(); n != 0 {
			t.Errorf("got %d connections after Close, want none", n)
		}
		if n := opt.Server.Memory.Budget().Used(); n != 0 {
			t.Errorf("got %d bytes still claimed after Close, want none", n)
		}
	})
	return s
}

// exchange sends raw bytes on a new connection and returns the answer, or what
// came before the connection was closed.
func exchange(t testing.TB, addr string, request []byte) (*http.Response, []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	go c.Write(request)
	return readAnswer(t, bufio.NewReader(c))
}

// readAnswer reads one answer; the response is nil when the connection ended
// without one.
func readAnswer(t testing.TB, r *bufio.Reader) (*http.Response, []byte) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
			t.Fatalf("no answer: %v", err)
		}
		return nil, nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer's body: %v", err)
	}
	return resp, body
}

// post returns a request with a body.
func post(path string, body []byte, headers ...string) []byte {
	var b bytes.Buffer
	b.WriteString("POST " + path + " HTTP/1.1\r\nHost: x\r\n")
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("Content-Length: " + itoa(len(body)) + "\r\n\r\n")
	b.Write(body)
	return b.Bytes()
}

func itoa(n int) string { return strconv.Itoa(n) }
