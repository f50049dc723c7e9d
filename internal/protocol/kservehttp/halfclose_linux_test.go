package kservehttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shoal/internal/protocol/httpserver"
)

// finish closes the client's own direction.
func finish(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func TestAClientThatHalfClosesGetsItsAnswer(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			g := newGate()
			e := startEngine(t, fakeModel, g)
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			startOn(t, e, Options{}, l)
			runs, waits := dial(t, network, l.Addr().String()), dial(t, network, l.Addr().String())
			send(t, runs, fakeRequest)
			finish(t, runs)
			<-g.running
			send(t, waits, fakeRequest)
			finish(t, waits)
			eventually(t, "the second request is queued", func() bool { return pending(t, e) == 1 })
			r := bufio.NewReader(waits)
			if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("got %q (%v), want an interim response", line, err)
			}
			if got := pending(t, e); got != 1 {
				t.Errorf("got %d requests queued after the interim response, want the one", got)
			}
			g.open <- struct{}{}
			g.open <- struct{}{}
			_, _ = r.ReadString('\n')
			for i, c := range []io.Reader{r, runs} {
				resp := final(t, c)
				if resp == nil || resp.StatusCode != 200 {
					t.Errorf("client %d: got %v, want 200", i, resp)
				}
			}
		})
	}
}

// final reads an answer, after interim ones.
func final(t *testing.T, from io.Reader) *http.Response {
	t.Helper()
	r := bufio.NewReader(from)
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Errorf("read an answer: %v", err)
			return nil
		}
		if resp.StatusCode != http.StatusContinue {
			return resp
		}
	}
}

func TestAClientThatIsGoneFreesItsPlaceInTheQueue(t *testing.T) {
	g := newGate()
	e := startEngine(t, fakeModel, g)
	addr := start(t, e, Options{})
	runs, first, second := dial(t, "tcp", addr), dial(t, "tcp", addr), dial(t, "tcp", addr)
	send(t, runs, fakeRequest)
	<-g.running
	send(t, first, fakeRequest)
	send(t, second, fakeRequest)
	eventually(t, "two requests are queued", func() bool { return pending(t, e) == 2 })
	_ = first.Close()
	eventually(t, "the request of the client that closed is withdrawn", func() bool { return pending(t, e) == 1 })
	finish(t, second)
	_ = second.Close()
	eventually(t, "so is that of the client that closed one direction first", func() bool { return pending(t, e) == 0 })
	g.open <- struct{}{}
	if resp := final(t, runs); resp == nil || resp.StatusCode != 200 {
		t.Errorf("the one that stayed: got %v, want 200", resp)
	}
}

func TestAnAnswerThatComesSoonIsNotPrecededByAnything(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{Server: httpserver.Options{ProbeAfter: time.Hour}})
	c := dial(t, "tcp", addr)
	send(t, c, post("/v2/models/var/infer", []byte(input(goodInput))))
	finish(t, c)
	all, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 200 ") {
		t.Errorf("got %q (%v), want 200 at once", all, err)
	}
}

func TestAnHTTP10ClientIsSentNoInterimResponse(t *testing.T) {
	g := newGate()
	e := startEngine(t, fakeModel, g)
	addr := start(t, e, Options{})
	old := dial(t, "tcp", addr)
	send(t, old, []byte(strings.Replace(string(fakeRequest), "HTTP/1.1", "HTTP/1.0", 1)))
	<-g.running
	finish(t, old)
	other := dial(t, "tcp", addr)
	send(t, other, fakeRequest)
	finish(t, other)
	r := bufio.NewReader(other)
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" { // sent after the old one's would be
		t.Fatalf("the other client: got %q (%v), want an interim response", line, err)
	}
	g.open <- struct{}{}
	g.open <- struct{}{}
	all, err := io.ReadAll(old)
	if err != nil || !strings.HasPrefix(string(all), "HTTP/1.0 200 ") {
		t.Errorf("got %q (%v), want 200 in HTTP/1.0", all, err)
	}
}

func TestABodyIsNotUnderTheHeadersTimeout(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{Server: httpserver.Options{HeaderTimeout: time.Hour, StallTimeout: 50 * time.Millisecond}})
	for _, begin := range []string{"", "{"} {
		c := dial(t, "tcp", addr)
		send(t, c, []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"+begin))
		resp, body := readAnswer(t, bufio.NewReader(c))
		if resp == nil || resp.StatusCode != 408 || !strings.Contains(string(body), "--http-body-timeout-secs") {
			t.Errorf("%q: got %v %s, want 408 that names the body's flag", begin, resp, body)
		}
	}
}
