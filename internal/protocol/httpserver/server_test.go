package httpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// A pathDialect serves each path by a function of the test and tells errors as
// plain text.
type pathDialect map[string]func(x *Exchange) error

func (d pathDialect) Serve(x *Exchange) error {
	serve, ok := d[string(x.Header.RequestURI())]
	if !ok {
		return &Error{Status: 404, Text: "no such path"}
	}
	return serve(x)
}

func (pathDialect) AppendError(b []byte, err error) ([]byte, ErrorHead) {
	head := ErrorHead{Status: 400, Type: "text/x-error"}
	if e, ok := errors.AsType[*Error](err); ok {
		head.Status, head.Phrase = e.Status, e.Phrase
	} else if status.CodeOf(err) == status.Internal {
		head.Status = 500
	}
	return append(b, "sorry: "+publicText(err)...), head
}

func (pathDialect) Model(target []byte) (string, int64) { return "", -1 }

// echo answers with the request's body.
func echo(x *Exchange) error {
	body, err := x.Receive(1<<20, ErrBodyTooLarge)
	if err != nil {
		return err
	}
	defer body.Release()
	x.SetType("text/plain")
	x.SetBody([]byte(string(body.B)))
	return nil
}

// start returns the address of a server that ends with the test.
func start(t *testing.T, opt Options, d Dialect) string {
	t.Helper()
	_, addr := startServer(t, opt, d)
	return addr
}

func startServer(t *testing.T, opt Options, d Dialect) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opt.Memory = inflight.NewPool(inflight.New(1<<40, 0))
	s, err := Start(opt, d, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if n := opt.Memory.Budget().Used(); n != 0 {
			t.Errorf("got %d bytes still claimed after Close, want none", n)
		}
	})
	return s, l.Addr().String()
}

// eventually fails the test when cond does not come true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(4 * time.Second) // less than lingerFor
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came true: %s", what)
		}
	}
}

// A client is a connection of a test.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return client{c, bufio.NewReader(c)}
}

// ask sends raw bytes and returns the answer; nil when the connection ended
// without one.
func (c client) ask(t *testing.T, request, method string) (*http.Response, string) {
	t.Helper()
	go io.WriteString(c, request)
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return nil, err.Error()
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err.Error()
	}
	return resp, string(body)
}

func TestTheServersOwnErrorsAreToldByTheDialect(t *testing.T) {
	const limit = 100 * time.Millisecond
	addr := start(t, Options{MaxBodySize: 1000, HeaderTimeout: limit, StallTimeout: limit}, pathDialect{
		"/echo":  echo,
		"/panic": func(*Exchange) error { panic("at the dialect") },
	})
	for _, c := range []struct {
		name, request string
		status        int
		text          string
	}{
		{"no such path", "GET /nosuch HTTP/1.1\r\nHost: x\r\n\r\n", 404, "no such path"},
		{"a panic", "GET /panic HTTP/1.1\r\nHost: x\r\n\r\n", 500, "internal error"},
		{"malformed headers", "GET /echo HTTP/1.1\r\n: x\r\n\r\n", 400, "no valid HTTP/1.1"},
		{"a malformed host", "GET /echo HTTP/1.1\r\nHost: [::1\r\n\r\n", 400, "no valid HTTP/1.1"},
		{"slow headers", "GET /echo HTTP/1.1\r\nHost:", 408, "headers did not arrive in time"},
		{"a slow body", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx", 408, "body did not arrive in time"},
		{"a large body", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413, "exceeds the maximum of 1000 bytes"},
		{"a large body, asked before", "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n", 413, "1000 bytes"},
		{"large headers", "GET /echo HTTP/1.1\r\nHost: " + strings.Repeat("x", 20_000) + "\r\n\r\n", 431, "headers are too large"},
		{"another version", "GET /echo HTTP/2.0\r\nHost: x\r\n\r\n", 505, "Version Not Supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := dial(t, addr).ask(t, c.request, "")
			if resp == nil || resp.StatusCode != c.status || !strings.HasPrefix(body, "sorry: ") || !strings.Contains(body, c.text) {
				t.Fatalf("got %v %q, want %d with %q", resp, body, c.status, c.text)
			}
			if got := resp.Header.Get("Content-Type"); got != "text/x-error" {
				t.Errorf("got Content-Type %q, want the dialect's", got)
			}
		})
	}
}

// A client that sends on while it is refused must see the answer, not a reset.
func TestARefusedBodyDoesNotHideItsAnswer(t *testing.T) {
	addr := start(t, Options{MaxBodySize: 1000}, pathDialect{"/echo": echo})
	const size = 8 << 20 // more than lies between
	request := "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" + strings.Repeat("x", size)
	if resp, body := dial(t, addr).ask(t, request, ""); resp == nil || resp.StatusCode != 413 || !resp.Close {
		t.Errorf("got %v %s, want 413 and the end", resp, body)
	}
}

func TestServersShareALimit(t *testing.T) {
	running, open := make(chan struct{}), make(chan struct{})
	defer close(open)
	opt := Options{Limit: NewLimit(1), Rejects: reject.New(nil, slog.New(slog.DiscardHandler))}
	inference := start(t, opt, pathDialect{"/run": func(*Exchange) error {
		running <- struct{}{}
		<-open
		return nil
	}})
	server, management := startServer(t, opt, pathDialect{"/echo": echo})
	const ping = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
	idle := dial(t, management)
	if resp, body := idle.ask(t, ping, ""); resp == nil || resp.StatusCode != 200 {
		t.Fatalf("got %v %s, want 200", resp, body)
	}
	eventually(t, "the connection is idle", func() bool { return server.InFlight() == 0 })
	busy := dial(t, inference) // takes the place of the idle one
	go io.WriteString(busy, "GET /run HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-running:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection was not served")
	}
	if n, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection of the other server: got %d bytes and %v, want its end", n, err)
	}
	if resp, body := dial(t, management).ask(t, "", ""); resp == nil || resp.StatusCode != 503 || !strings.Contains(body, "has 1 connections") {
		t.Errorf("one connection too many: got %v %s, want 503", resp, body)
	}
	for why, want := range map[reject.Close]uint64{reject.Evicted: 1, reject.MaxConnections: 1} {
		if got := opt.Rejects.Connections(reject.HTTP, why); got != want {
			t.Errorf("%v: counted %d, want %d", why, got, want)
		}
	}
}

func TestAHeaderIsOneLine(t *testing.T) {
	addr := start(t, Options{}, pathDialect{"/": func(x *Exchange) error {
		x.SetHeader("X-A", "1\r\nX-B: 2")
		x.SetHeaderInt("X-C", -3)
		return nil
	}})
	resp, _ := dial(t, addr).ask(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "")
	if resp == nil || resp.Header.Get("X-A") != "1  X-B: 2" || resp.Header.Get("X-B") != "" || resp.Header.Get("X-C") != "-3" {
		t.Errorf("got %v, want X-A and X-C alone", resp)
	}
}

func TestTheAnswerToHEADHasNoBody(t *testing.T) {
	addr := start(t, Options{}, pathDialect{"/": func(x *Exchange) error {
		x.SetBody([]byte("hello"))
		return nil
	}})
	c := dial(t, addr)
	for range 2 { // the second would begin with the first one's body
		resp, body := c.ask(t, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD")
		if resp == nil || resp.StatusCode != 200 || resp.ContentLength != 5 || body != "" {
			t.Fatalf("got %v %q, want the head alone", resp, body)
		}
	}
}

// A script is a stream that writes its parts; an empty one is a panic.
type script struct {
	parts  []string
	closed chan struct{}
}

func (s script) WriteTo(w io.Writer) (total int64, err error) {
	for _, p := range s.parts {
		if p == "" {
			panic("within a stream")
		}
		n, err := io.WriteString(w, p)
		if total += int64(n); err != nil {
			return total, err
		}
	}
	return total, nil
}

func (s script) Close() error {
	close(s.closed)
	return nil
}

func TestStreams(t *testing.T) {
	for _, c := range []struct {
		name   string
		parts  []string
		length int
		want   string // empty when the connection ends early
	}{
		{"in chunks", []string{"a", "bc"}, -1, "abc"},
		{"of a known length", []string{"a", "bc"}, 3, "abc"},
		{"too short", []string{"a"}, 3, ""},
		{"that panics", []string{"a", ""}, 3, ""},
		{"that panics after a chunk", []string{"a", ""}, -1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := script{c.parts, make(chan struct{})}
			addr := start(t, Options{}, pathDialect{"/": func(x *Exchange) error {
				x.SetStream(s, c.length)
				return nil
			}})
			resp, body := dial(t, addr).ask(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "")
			if c.want != "" && (resp == nil || body != c.want) || c.want == "" && resp != nil {
				t.Errorf("got %v %q, want %q", resp, body, c.want)
			}
			<-s.closed
		})
	}
}

// A client that was refused and stays connected must not hold a place.
func TestARefusedClientMakesRoomForANewConnection(t *testing.T) {
	addr := start(t, Options{MaxConnections: 1, MaxBodySize: 1000}, pathDialect{"/echo": echo})
	refused := dial(t, addr)
	if resp, body := refused.ask(t, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", ""); resp == nil || resp.StatusCode != 413 {
		t.Fatalf("got %v %s, want 413", resp, body)
	}
	eventually(t, "a new connection is served", func() bool { // not while the refusal is on its way
		resp, _ := dial(t, addr).ask(t, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", "")
		return resp != nil && resp.StatusCode == 200
	})
}
