package grpcserver

import (
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestCallThatIsNotPermittedIsAnsweredBeforeItsMessage sends headers alone, and
// what a client that does not know better sends after them.
func TestCallThatIsNotPermittedIsAnsweredBeforeItsMessage(t *testing.T) {
	s := start(t, Options{Permit: func(method string, header func(string) []string) *status.Status {
		if method != "/test.Echo/Say" || len(header("key")) == 1 && header("key")[0] == "open" {
			return nil
		}
		return status.New(codes.Unavailable, "closed")
	}})
	c := s.raw(t)
	c.open(1, false, usual("Say")...)
	if got := c.outcome(1); got != "Unavailable" {
		t.Fatalf("without the key: got %s, want Unavailable", got)
	}
	c.check(c.framer.WriteData(1, false, rawMessage(100_000)))
	c.open(1, true, "trailer", "x")
	for i, key := range []string{"shut", "open", "shut", "open"} { // the same headers again
		id := uint32(2*i + 3)
		c.open(id, key == "shut", usual("Say", "key", key)...)
		want := "Unavailable"
		if key == "open" {
			c.check(c.framer.WriteData(id, true, rawMessage(10)))
			want = "OK"
		}
		if got := c.outcome(id); got != want {
			t.Fatalf("with key %s: got %s, want %s", key, got, want)
		}
	}
}

// TestTrailersAfterAnEarlyEndAreNoFault ends streams early in every way there
// is, and then sends trailers, which change what the server knows of HPACK.
func TestTrailersAfterAnEarlyEndAreNoFault(t *testing.T) {
	s := start(t, Options{MaxReceive: 1000, MaxStreams: 1})
	for name, headers := range map[string][]string{
		"refused":        replace(usual("Say"), "content-type", "text/html"),
		"unknown method": usual("Nosuch"),
		"malformed":      usual("Say", "connection", "close"),
		"deadline":       usual("Say", "grpc-timeout", "1m"),
	} {
		c := s.raw(t)
		c.open(1, false, headers...)
		first := c.outcome(1)
		c.open(1, true, "trailer", name)
		c.open(3, false, usual("Say", "trailer", name)...)
		c.check(c.framer.WriteData(3, true, rawMessage(3)))
		if got := c.outcome(3); got != "OK" {
			t.Errorf("%s: got %s after %s and trailers, want OK", name, got, first)
		}
	}
	// Trailers have an end and no fields of HTTP/2's own, also when they are late.
	for name, send := range map[string]func(c *rawClient){
		"no end":       func(c *rawClient) { c.open(1, false, "trailer", "x") },
		"pseudo field": func(c *rawClient) { c.open(1, true, ":method", "POST") },
	} {
		for _, method := range []string{"Nosuch", "Chat"} { // over, and open
			c := s.raw(t)
			c.open(1, false, usual(method)...)
			if method == "Nosuch" {
				c.frame(http2.FrameRSTStream)
			}
			send(c)
			if got := c.outcome(1); got != "RST PROTOCOL_ERROR" {
				t.Errorf("%s after %s: got %s, want RST PROTOCOL_ERROR", name, method, got)
			}
		}
	}
	// A stream that both have reset is over.
	both := s.raw(t)
	both.open(1, false, usual("Nosuch")...)
	both.frame(http2.FrameRSTStream)
	both.check(both.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	both.open(1, true, "trailer", "x")
	if got := both.outcome(1); got != "GOAWAY PROTOCOL_ERROR" {
		t.Errorf("trailers after both have reset: got %s, want GOAWAY PROTOCOL_ERROR", got)
	}
	// One stream too many.
	c := s.raw(t)
	c.open(1, false, usual("Wait")...)
	c.open(3, false, usual("Say")...)
	if got := c.outcome(3); got != "RST REFUSED_STREAM" {
		t.Fatalf("got %s, want RST REFUSED_STREAM", got)
	}
	c.open(3, true, "trailer", "x")
	c.check(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	c.open(5, false, usual("Say", "trailer", "x")...)
	c.check(c.framer.WriteData(5, true, rawMessage(3)))
	if got := c.outcome(5); got != "OK" {
		t.Errorf("too many: got %s, want OK", got)
	}
	// A stream that the client itself has reset is over.
	c.open(5, true, "trailer", "x")
	if got := c.outcome(7); got != "GOAWAY PROTOCOL_ERROR" {
		t.Errorf("trailers after an end of the client's: got %s, want GOAWAY PROTOCOL_ERROR", got)
	}
}

// TestPaddingIsGrantedBack sends far more padding than the windows hold.
func TestPaddingIsGrantedBack(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t)
	c.open(1, false, usual("Chat")...)
	granted, sent := int64(streamWindow), int64(0)
	message, pad := rawMessage(1), make([]byte, 255)
	size := int64(len(message) + len(pad) + 1)
	for sent < 8*streamWindow {
		for granted-sent < size {
			f := c.frame(http2.FrameWindowUpdate).(*http2.WindowUpdateFrame)
			if f.StreamID == 1 {
				granted += int64(f.Increment)
			}
		}
		c.check(c.framer.WriteDataPadded(1, false, message, pad))
		sent += size
	}
}
