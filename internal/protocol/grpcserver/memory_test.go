package grpcserver

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/internal/inflight"
	"shoal/internal/protocol/h2"
)

// wantClaimed waits until so many bytes, or fewer, are claimed.
func wantClaimed(t *testing.T, b *inflight.Budget, most int64) {
	t.Helper()
	for end := time.Now().Add(testTimeout); b.Used() > most; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("got %d bytes claimed, want %d at most", b.Used(), most)
		}
	}
}

// sync waits until the server has read what was sent.
func (c *rawClient) sync() {
	c.tb.Helper()
	c.check(c.framer.WritePing(false, [8]byte{1}))
	for {
		f, err := c.framer.ReadFrame()
		c.check(err)
		if p, ok := f.(*http2.PingFrame); ok && p.IsAck() {
			return
		}
	}
}

// prefix is that of a message of n bytes.
func prefix(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0}, n) }

func TestAnnouncedBytesClaimNoMemory(t *testing.T) {
	memory := inflight.NewPool(inflight.New(4<<30, 0))
	s := start(t, Options{Memory: memory, MaxReceive: 2<<30 - 1})
	const calls = 50
	for range calls {
		c := s.raw(t)
		c.open(1, false, usual("Say")...)
		// A DATA frame of 1 MiB is announced, 105 bytes are sent.
		head := h2.AppendHeader(nil, 1<<20, http2.FrameData, 0, 1)
		_, err := c.conn.Write(append(append(head, prefix(2<<30-1)...), make([]byte, 100)...))
		c.check(err)
		c.check(c.settled())
	}
	if got, want := memory.Budget().Used(), int64(calls*(ConnMemory+callMemory+minPiece)); got > want {
		t.Errorf("got %d bytes claimed for %d calls that sent 105 bytes each, want %d at most", got, calls, want)
	}
}

// settled waits until the server has read what was sent: it does not answer a
// ping inside a frame, so the settings that it acknowledges come before.
func (c *rawClient) settled() error {
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		if s, ok := f.(*http2.SettingsFrame); ok && s.IsAck() {
			return nil
		}
	}
}

func TestMessageThatNeverFitsIsRefusedAtItsPrefix(t *testing.T) {
	s := start(t, Options{Memory: inflight.NewPool(inflight.New(8<<20, 0)), MaxReceive: 2<<30 - 1})
	c := s.raw(t)
	c.open(1, false, usual("Say")...)
	c.check(c.framer.WriteData(1, false, prefix(100<<20)))
	if got := c.outcome(1); got != codes.ResourceExhausted.String() {
		t.Errorf("got %s, want ResourceExhausted", got)
	}
}

func TestNextClientIsServedWhenTheBudgetIsUsedUp(t *testing.T) {
	memory := inflight.NewPool(inflight.New(16<<20, 50*time.Millisecond))
	s := start(t, Options{Memory: memory})
	// Clients that send half of a message of 4 MiB each and then nothing.
	for range 12 {
		c := s.raw(t)
		c.open(1, false, usual("Say")...)
		c.check(c.framer.WriteData(1, false, prefix(4<<20)))
		part := make([]byte, 16<<10)
		for range 2 << 20 / len(part) {
			c.check(c.framer.WriteData(1, false, part))
		}
	}
	refused := 0
	for range 20 {
		ctx := testContext(t) // for each: 160 MB take long on a busy machine
		if out, err := call1(ctx, s.conn, "Say", make([]byte, 10<<10)); err != nil || len(out) != 10<<10 {
			t.Fatalf("a small call: got %d bytes and %v, want it answered", len(out), err)
		}
		if _, err := call1(ctx, s.conn, "Say", make([]byte, 8<<20)); status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	if used := memory.Budget().Used(); used > 16<<20 {
		t.Errorf("got %d bytes claimed, want the limit of %d at most", used, 16<<20)
	}
	if refused == 0 {
		t.Error("got no large call refused, want some")
	}
}

func TestMemoryOfUnfinishedCallsIsGivenBack(t *testing.T) {
	big := rawMessage(300 << 10)
	half := big[:len(big)/2]
	for _, c := range []struct {
		name string
		act  func(c *rawClient)
	}{
		{"the client resets the stream inside a message", func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.data(1, false, half)
			c.check(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
			c.sync()
		}},
		{"the client resets the stream after a message", func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.data(1, false, big)
			c.check(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
			c.sync()
		}},
		{"the client ends the stream inside a message", func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.data(1, true, half)
			c.outcome(1)
		}},
		{"the deadline passes inside a message", func(c *rawClient) {
			c.open(1, false, usual("Say", "grpc-timeout", "20m")...)
			c.data(1, false, half)
			c.outcome(1)
		}},
		{"the connection is lost inside a message", func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.data(1, false, half)
			c.sync()
			_ = c.conn.Close()
		}},
		{"the connection is lost inside a stream's message", func(c *rawClient) {
			c.open(1, false, usual("Chat")...)
			c.data(1, false, big)
			c.data(1, false, half)
			c.sync()
			_ = c.conn.Close()
		}},
		{"the method is unknown", func(c *rawClient) {
			c.open(1, false, usual("Nobody")...)
			c.data(1, true, big)
			c.outcome(1)
		}},
		{"there are two messages", func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.data(1, true, append(append([]byte(nil), big...), half...))
			c.outcome(1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := inflight.NewPool(inflight.New(1<<30, 0))
			s := start(t, Options{Memory: memory})
			c.act(s.raw(t))
			wantClaimed(t, memory.Budget(), ConnMemory+inputSize-smallInput)
		})
	}
}

// data sends b in frames of the usual size.
func (c *rawClient) data(id uint32, end bool, b []byte) {
	c.tb.Helper()
	for len(b) > 0 {
		part := b[:min(len(b), 16<<10)]
		b = b[len(part):]
		c.check(c.framer.WriteData(id, end && len(b) == 0, part))
	}
}

func TestMessageIsUnpackedWithinItsLimits(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	zeros := make([]byte, 1<<20)
	for range 24 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	for _, c := range []struct {
		name string
		opt  Options
		want string
	}{
		{"size", Options{MaxUnpacked: 20 << 20}, "larger than max 20971520"},
		{"ratio", Options{MaxRatio: 300}, "larger than max "},
		{"budget", Options{Memory: inflight.NewPool(inflight.New(16<<20, time.Millisecond))}, "--max-inflight-bytes"},
	} {
		s := start(t, c.opt)
		raw := s.raw(t)
		raw.open(1, false, usual("Say", "grpc-encoding", "gzip")...)
		message := prefix(uint32(packed.Len()))
		message[0] = 1
		raw.data(1, true, append(message, packed.Bytes()...))
		if got := raw.outcomeMessage(1); !strings.HasPrefix(got, codes.ResourceExhausted.String()) || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want ResourceExhausted with %q", c.name, got, c.want)
		}
	}
	// The same within all limits.
	s := start(t, Options{MaxReceive: 128 << 20, MaxSend: 128 << 20})
	if _, err := call1(testContext(t), s.conn, "Say", make([]byte, 15<<20), grpc.UseCompressor("gzip")); err != nil {
		t.Error(err)
	}
}

// outcomeMessage is outcome with the text of a status.
func (c *rawClient) outcomeMessage(id uint32) string {
	c.tb.Helper()
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return err.Error()
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == id && h.StreamEnded() {
			text := statusText(h)
			for _, field := range h.Fields {
				if field.Name == "grpc-message" {
					text += " " + field.Value
				}
			}
			return text
		}
	}
}

func TestIdleStreamsCountAgainstTheBudget(t *testing.T) {
	memory := inflight.NewPool(inflight.New(1<<20, 0))
	s := start(t, Options{Memory: memory})
	c := s.raw(t)
	id := uint32(1)
	for ; id < 200; id += 2 {
		c.open(id, false, usual("Chat")...)
	}
	if got := c.outcome(id - 2); got != codes.ResourceExhausted.String() {
		t.Errorf("the last of many streams: got %s, want ResourceExhausted", got)
	}
	if got := memory.Budget().Used(); got > 1<<20 {
		t.Errorf("got %d bytes claimed, want %d at most", got, 1<<20)
	}
	_ = c.conn.Close()
	wantClaimed(t, memory.Budget(), 0)
	if _, err := call1(testContext(t), s.conn, "Say", []byte("x")); err != nil {
		t.Errorf("a call after they have gone: got %v, want none", err)
	}
}
