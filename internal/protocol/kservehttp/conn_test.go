package kservehttp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shoal/internal/backend/backendtest"
	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/protocol/httpserver"
)

// fakeModel is served by a backend that a test has in hand, one at a time.
var fakeModel = map[string]string{"fake": `backend: "fake" instance_group { count: 1 kind: KIND_CPU } ` + oneInput("TYPE_FP32", "-1")}

// A gate is a backend whose runs wait to be let go.
type gate struct {
	backendtest.Fake
	running chan struct{} // gets a value when a run begins
	open    chan struct{} // a value lets one run go on
}

func newGate() *gate {
	g := &gate{running: make(chan struct{}, 16), open: make(chan struct{}, 16)}
	g.OnRun = func(b *infer.Batch) error {
		g.running <- struct{}{}
		<-g.open
		for _, r := range b.Requests {
			out := r.Response.AddOutput()
			out.Name, out.Type, out.Data = "OUTPUT0", r.Inputs[0].Type, r.Inputs[0].Data.First
			out.Shape = append(out.Shape, r.Inputs[0].Shape...)
		}
		return nil
	}
	return g
}

// eventually fails the test when cond does not come true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Second)
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

func pending(t *testing.T, e *engine.Engine) int64 {
	t.Helper()
	list, err := e.Statistics("fake", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	return list[0].Pending
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func send(t *testing.T, c net.Conn, request []byte) {
	t.Helper()
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
}

var fakeRequest = inferRequest("fake", input(goodInput))

func TestHangingUpTakesTheRequestOutOfTheQueue(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			g := newGate()
			e := startEngine(t, fakeModel, g)
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = filepath.Join(t.TempDir(), "s")
			}
			l, err := net.Listen(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			startOn(t, e, Options{}, l)
			first, second := dial(t, network, l.Addr().String()), dial(t, network, l.Addr().String())
			send(t, first, fakeRequest)
			<-g.running
			send(t, second, fakeRequest)
			eventually(t, "the second request is queued", func() bool { return pending(t, e) == 1 })
			second.Close()
			eventually(t, "the second request is out of the queue", func() bool { return pending(t, e) == 0 })
			g.open <- struct{}{}
			if resp, body := readAnswer(t, bufio.NewReader(first)); resp == nil || resp.StatusCode != 200 {
				t.Errorf("first request: got %v %s, want 200", resp, body)
			}
			if got := g.Sizes(); len(got) != 1 {
				t.Errorf("got %d runs, want 1", len(got))
			}
		})
	}
}

func TestCloseFinishesWhatRunsAndClosesWhatIdles(t *testing.T) {
	g := newGate()
	e := startEngine(t, fakeModel, g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(Options{}, e, l)
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	busy, idle, used := dial(t, "tcp", addr), dial(t, "tcp", addr), dial(t, "tcp", addr)
	send(t, busy, fakeRequest)
	<-g.running
	send(t, used, []byte("GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"))
	if resp, _ := readAnswer(t, bufio.NewReader(used)); resp == nil {
		t.Fatal("got no answer before the close")
	}
	eventually(t, "all are admitted", func() bool { return s.Connections() == 3 })

	closed := make(chan error)
	go func() { closed <- s.Close(t.Context()) }()
	for _, c := range []net.Conn{idle, used} {
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("idle connection: got %d bytes and %v, want its end", n, err)
		}
	}
	if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		t.Error("a connection was taken after the close began")
	}
	g.open <- struct{}{}
	resp, body := readAnswer(t, bufio.NewReader(busy))
	if resp == nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("request in flight: got %v %s, want 200 with Connection: close", resp, body)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
}

func TestCloseDoesNotWaitBeyondItsContext(t *testing.T) {
	g := newGate()
	e := startEngine(t, fakeModel, g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(Options{}, e, l)
	if err != nil {
		t.Fatal(err)
	}
	c, queued := dial(t, "tcp", l.Addr().String()), dial(t, "tcp", l.Addr().String())
	send(t, c, fakeRequest)
	<-g.running
	send(t, queued, fakeRequest)
	eventually(t, "the second request is queued", func() bool { return pending(t, e) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err == nil {
		t.Error("got nil, want an error that names the requests in flight")
	}
	eventually(t, "the queued request is cancelled", func() bool { return pending(t, e) == 0 })
	g.open <- struct{}{}
}

func TestOneConnectionTooManyIsTurnedAway(t *testing.T) {
	g := newGate()
	addr := start(t, startEngine(t, fakeModel, g), Options{Server: httpserver.Options{MaxConnections: 1}})
	c := dial(t, "tcp", addr)
	send(t, c, fakeRequest)
	<-g.running
	defer func() { g.open <- struct{}{} }()
	resp, body := readAnswer(t, bufio.NewReader(dial(t, "tcp", addr)))
	if resp == nil || resp.StatusCode != 503 || !strings.Contains(string(body), "--http-max-connections") {
		t.Errorf("second connection: got %v %s, want 503 that names the flag", resp, body)
	}
}

// TestUnfinishedRequestMakesRoomForANewConnection: a client that does not send
// on is as good as idle.
func TestUnfinishedRequestMakesRoomForANewConnection(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{Server: httpserver.Options{MaxConnections: 1}})
	c := dial(t, "tcp", addr)
	r := bufio.NewReader(c)
	send(t, c, []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"))
	if resp, _ := readAnswer(t, r); resp == nil || resp.StatusCode != 100 { // it is being served
		t.Fatalf("first connection: got %v, want 100", resp)
	}
	eventually(t, "the new connection is served", func() bool {
		resp, _ := exchange(t, addr, []byte("GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"))
		return resp != nil && resp.StatusCode == 200
	})
}

func TestIdleConnectionMakesRoomForANewOne(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{Server: httpserver.Options{MaxConnections: 3}})
	var idle []net.Conn
	for range 20 {
		idle = append(idle, dial(t, "tcp", addr))
		resp, _ := exchange(t, addr, []byte("GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
		if resp == nil || resp.StatusCode != 200 {
			t.Fatalf("with %d idle connections: got %v, want 200", len(idle), resp)
		}
	}
	if _, err := idle[0].Read(make([]byte, 1)); err == nil {
		t.Error("the first connection: got it open, want it closed")
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{Server: httpserver.Options{IdleTimeout: 50 * time.Millisecond}})
	for _, first := range []string{"", "GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"} {
		c := dial(t, "tcp", addr)
		r := bufio.NewReader(c)
		if first != "" {
			send(t, c, []byte(first))
			if resp, _ := readAnswer(t, r); resp == nil {
				t.Fatal("got no answer")
			}
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
			t.Errorf("after %q: got %q and %v, want the end without a word", first, rest, err)
		}
	}
}

func TestClientThatDoesNotReadIsCutOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := startOn(t, startEngine(t, oddModels), Options{Server: httpserver.Options{StallTimeout: 300 * time.Millisecond}}, l)
	head := input(`"shape":[4194304],"datatype":"FP32","parameters":{"binary_data_size":16777216}`)
	head = head[:len(head)-1] + `,"parameters":{"binary_data_output":true}}`
	c := dial(t, "tcp", l.Addr().String())
	c.(*net.TCPConn).SetReadBuffer(4096) // so that the answer does not fit what lies between
	send(t, c, post("/v2/models/var/infer", append([]byte(head), make([]byte, 16<<20)...), "Inference-Header-Content-Length: "+itoa(len(head))))
	eventually(t, "the connection is closed", func() bool { return s.Connections() == 0 })
}

func TestRequestsInOnePacketAreAnsweredInOrder(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{})
	c := dial(t, "tcp", addr)
	send(t, c, []byte(strings.Repeat("GET /v2/models/var HTTP/1.1\r\nHost: x\r\n\r\nGET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n", 20)))
	r := bufio.NewReader(c)
	for i := range 40 {
		resp, body := readAnswer(t, r)
		if resp == nil || resp.StatusCode != 200 || (len(body) > 0) != (i%2 == 0) {
			t.Fatalf("answer %d: got %v %s", i, resp, body)
		}
	}
}

func TestExpectIsAnsweredBeforeTheBody(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{})
	c := dial(t, "tcp", addr)
	body := input(goodInput)
	send(t, c, []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"))
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q (%v), want 100 Continue", line, err)
	}
	r.ReadString('\n')
	send(t, c, []byte(body))
	if resp, got := readAnswer(t, r); resp == nil || resp.StatusCode != 200 {
		t.Errorf("got %v %s, want 200", resp, got)
	}
}

func TestHTTP10IsClosedUnlessAskedToStay(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{})
	c := dial(t, "tcp", addr)
	r := bufio.NewReader(c)
	send(t, c, []byte("GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"))
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.Proto != "HTTP/1.0" {
		t.Fatalf("got %v (%v), want an answer in HTTP/1.0", resp, err)
	}
	io.Copy(io.Discard, resp.Body)
	send(t, c, []byte("GET /v2 HTTP/1.0\r\n\r\n"))
	if resp, _ := readAnswer(t, r); resp == nil {
		t.Fatal("got no answer on the kept connection")
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("got %v, want the connection closed", err)
	}
}

// A body that nobody reads must not keep its answer from the client.
func TestAnswerArrivesThoughTheBodyIsNotRead(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{})
	c := dial(t, "tcp", addr)
	const size = 40 << 20 // more than is read for the sake of the connection
	go func() {
		io.WriteString(c, "POST /v2/models/nosuch/infer HTTP/1.1\r\nHost: x\r\nContent-Length: "+itoa(size)+"\r\n\r\n")
		c.Write(make([]byte, size))
	}()
	resp, body := readAnswer(t, bufio.NewReader(c))
	if resp == nil || resp.StatusCode != 404 || !resp.Close {
		t.Errorf("got %v %s, want 404 with Connection: close", resp, body)
	}
}
