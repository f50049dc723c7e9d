package connlimit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"syscall"
	"testing"
)

type fake struct {
	name         string
	since        int64
	busy, closed bool
	looks        *int
}

func (f *fake) IdleSince() (int64, bool) { *f.looks++; return f.since, !f.busy }

func (f *fake) CloseIdle() bool {
	f.closed = !f.busy
	return f.closed
}

func TestNewConnectionTakesThePlaceOfTheLongestIdle(t *testing.T) {
	var gone []string
	looks := 0
	l := New(3, func(f *fake) { gone = append(gone, f.name) })
	conn := func(name string, since int64, busy bool) *fake {
		return &fake{name: name, since: since, busy: busy, looks: &looks}
	}
	a, b, c := conn("a", 3, false), conn("b", 1, false), conn("c", 0, true)
	for _, f := range []*fake{a, b, c} {
		if !l.Add(f) {
			t.Fatalf("%s: got refused, want it taken", f.name)
		}
	}
	if !l.Add(conn("d", 4, true)) || !slices.Equal(gone, []string{"b"}) || !b.closed {
		t.Errorf("got %v closed, want b, which was idle longest", gone)
	}
	l.Remove(a)
	if !l.Add(conn("e", 5, true)) || len(gone) != 1 {
		t.Errorf("got %v closed after one had gone, want b alone", gone)
	}
	if l.Add(conn("f", 6, false)) {
		t.Error("all busy: got a connection taken, want it refused")
	}
	c.busy = false
	l.none = l.none.Add(-lookPause)
	if !l.Add(conn("g", 7, false)) || !slices.Equal(gone, []string{"b", "c"}) {
		t.Errorf("got %v closed, want b and c", gone)
	}
}

func TestLookingAtAllConnectionsIsRare(t *testing.T) {
	const n = 10_000
	looks := 0
	l := New(n, func(*fake) {})
	for i := range 2 * n {
		if !l.Add(&fake{since: int64(i), looks: &looks}) {
			t.Fatal("got refused, want it taken")
		}
	}
	if most := 2 * n * (n/maxOldest + 1) / 2 * 2; looks > most {
		t.Errorf("got %d looks for %d evictions, want at most %d", looks, n, most)
	}
	// Where all are busy, one look answers many connections.
	busy := New(n, func(*fake) {})
	for range n {
		busy.Add(&fake{busy: true, looks: &looks})
	}
	looks = 0
	for range 100 {
		busy.Add(&fake{looks: &looks})
	}
	if looks > 20*n {
		t.Errorf("got %d looks for 100 refusals, want a few times %d", looks, n)
	}
}

// failing has no descriptor until one is closed.
type failing struct {
	net.Listener
	has func() bool
}

func (f failing) Accept() (net.Conn, error) {
	if f.has() {
		return nil, io.EOF
	}
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

func TestAcceptClosesAnIdleConnectionForADescriptor(t *testing.T) {
	looks := 0
	idle := &fake{looks: &looks}
	l := New(10, func(*fake) {})
	l.Add(idle)
	if _, err := l.Accept(failing{has: func() bool { return idle.closed }}); err != io.EOF {
		t.Errorf("got %v, want what came after a connection was closed", err)
	}
	if _, err := l.Accept(failing{has: func() bool { return false }}); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("with nothing to close: got %v, want EMFILE", err)
	}
}

func TestHTTPServerAnswersAtItsLimit(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := NewHTTP(4)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }), ConnState: h.ConnState}
	go func() { _ = s.Serve(h.Listener(ln)) }()
	defer s.Close()
	for range 20 {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 20 {
		resp, err := client.Get("http://" + ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(b) != "here" {
			t.Errorf("got %q, want an answer", b)
		}
	}
}
