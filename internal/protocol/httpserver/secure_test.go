package httpserver

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// certificate is one of net/http/httptest's.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

func TestRequestsOverTLS(t *testing.T) {
	addr := start(t, Options{TLS: certificate(t)}, pathDialect{"/echo": echo})
	c := dial(t, addr)
	secure := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
	c.Conn = secure
	c.r.Reset(secure)
	for range 2 { // on one connection
		resp, body := c.ask(t, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nfour", "POST")
		if resp == nil || resp.StatusCode != 200 || body != "four" {
			t.Fatalf("got %v %q, want the body again", resp, body)
		}
	}
	plain := dial(t, addr)
	if resp, body := plain.ask(t, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", "GET"); resp == nil || resp.StatusCode != 400 || !strings.Contains(body, "https://") {
		t.Errorf("HTTP without TLS: got %v %q, want 400 that names https://", resp, body)
	}
}

func TestHandshakesThatDoNotEndAreCutOff(t *testing.T) {
	s, addr := startServer(t, Options{TLS: certificate(t), HeaderTimeout: 50 * time.Millisecond}, pathDialect{"/echo": echo})
	silent := dial(t, addr)
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("silence: got an answer")
	}
	eventually(t, "no connection is left", func() bool { return s.Connections() == 0 })
}
