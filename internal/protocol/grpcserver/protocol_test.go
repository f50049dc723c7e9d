package grpcserver

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/keepalive"
	"shoal/internal/protocol/h2"
)

// TestFaultsOfAClientHaveTheirAnswer sends what no client should. What the
// server says to it is grpc-go's wherever that keeps to the rules of HTTP/2.
func TestFaultsOfAClientHaveTheirAnswer(t *testing.T) {
	s := start(t, Options{MaxReceive: 1 << 20})
	say := rawMessage(3)
	for name, c := range map[string]struct {
		send func(c *rawClient)
		want string
	}{
		"a good call": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, true, say))
		}, "OK"},
		"byte by byte, with padding": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			for _, b := range say {
				c.check(c.framer.WriteDataPadded(1, false, []byte{b}, make([]byte, 3)))
			}
			c.check(c.framer.WriteData(1, true, nil))
		}, "OK"},
		"a header in many frames": {func(c *rawClient) {
			block := c.fields(usual("Say")...)
			c.check(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1]}))
			for i := 1; i < len(block); i++ {
				c.check(c.framer.WriteContinuation(1, i == len(block)-1, block[i:i+1]))
			}
			c.check(c.framer.WriteData(1, true, say))
		}, "OK"},
		"trailers": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, false, say))
			c.open(1, true, "x", "y")
		}, "OK"},
		"an unknown frame": {func(c *rawClient) {
			c.check(c.framer.WriteRawFrame(77, 0, 0, make([]byte, 100_000)))
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, true, say))
		}, "OK"},
		"no message": {func(c *rawClient) { c.open(1, true, usual("Say")...) }, "Internal"},
		"two messages": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, true, append(say, say...)))
		}, "Internal"},
		"half a message": {func(c *rawClient) { c.open(1, false, usual("Say")...); c.check(c.framer.WriteData(1, true, say[:6])) }, "Internal"},
		"no protobuf": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, true, []byte{0, 0, 0, 0, 1, 0xff}))
		}, "Internal"},
		"a wrong flag": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, true, []byte{2, 0, 0, 0, 0}))
		}, "Internal"},
		"compressed by none": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, true, []byte{1, 0, 0, 0, 0}))
		}, "Internal"},
		"too large a claim": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, false, []byte{0, 0xff, 0xff, 0xff, 0xff}))
		}, "ResourceExhausted"},
		"unknown encoding":  {func(c *rawClient) { c.open(1, true, usual("Say", "grpc-encoding", "br")...) }, "Unimplemented"},
		"unknown method":    {func(c *rawClient) { c.open(1, false, usual("Nosuch")...) }, "Unimplemented"},
		"malformed path":    {func(c *rawClient) { c.open(1, false, replace(usual("Say"), ":path", "Say")...) }, "Unimplemented"},
		"no time":           {func(c *rawClient) { c.open(1, false, usual("Say", "grpc-timeout", "0n")...) }, "DeadlineExceeded"},
		"time is up":        {func(c *rawClient) { c.open(1, false, usual("Say", "grpc-timeout", "1m")...) }, "DeadlineExceeded"},
		"malformed timeout": {func(c *rawClient) { c.open(1, false, usual("Say", "grpc-timeout", "1x")...) }, "HTTP 400"},
		"malformed binary":  {func(c *rawClient) { c.open(1, false, usual("Say", "a-bin", "!")...) }, "HTTP 400"},
		"another content":   {func(c *rawClient) { c.open(1, false, replace(usual("Say"), "content-type", "text/html")...) }, "HTTP 415"},
		"another method":    {func(c *rawClient) { c.open(1, true, replace(usual("Say"), ":method", "GET")...) }, "HTTP 405"},
		"two authorities":   {func(c *rawClient) { c.open(1, true, append([]string{":authority", "x"}, usual("Say")...)...) }, "HTTP 400"},
		"no authority":      {func(c *rawClient) { c.open(1, true, replace(usual("Say"), ":authority", "")...) }, "HTTP 400"},
		"a large header": {func(c *rawClient) {
			c.open(1, true, usual("Say", "x", strings.Repeat("y", 60_000), "z", strings.Repeat("y", 20_000))...)
		}, "HTTP 431"},
		"connection header": {func(c *rawClient) { c.open(1, true, usual("Say", "connection", "close")...) }, "RST PROTOCOL_ERROR"},
		"upper case":        {func(c *rawClient) { c.open(1, true, usual("Say", "Upper", "x")...) }, "RST PROTOCOL_ERROR"},
		"late :path":        {func(c *rawClient) { c.open(1, true, usual("Say", ":path", "/x/y")...) }, "RST PROTOCOL_ERROR"},
		"wrong length": {func(c *rawClient) {
			c.open(1, false, usual("Say", "content-length", "99")...)
			c.check(c.framer.WriteData(1, true, say))
		}, "RST PROTOCOL_ERROR"},
		"data after the end": {func(c *rawClient) {
			c.open(1, false, usual("Wait")...)
			c.check(c.framer.WriteData(1, true, say))
			c.check(c.framer.WriteData(1, true, say))
		}, "RST STREAM_CLOSED"},
		"stream widened by 0": {func(c *rawClient) { c.open(1, false, usual("Say")...); c.check(c.framer.WriteWindowUpdate(1, 0)) }, "RST PROTOCOL_ERROR"},
		"stream too wide": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteWindowUpdate(1, h2.MaxWindow))
		}, "RST FLOW_CONTROL_ERROR"},
		"self dependency": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WritePriority(1, http2.PriorityParam{StreamDep: 1}))
		}, "RST PROTOCOL_ERROR"},
		"even stream":       {func(c *rawClient) { c.open(2, true, usual("Say")...) }, "GOAWAY PROTOCOL_ERROR"},
		"older stream":      {func(c *rawClient) { c.open(5, true, usual("Say")...); c.open(3, true, usual("Say")...) }, "GOAWAY PROTOCOL_ERROR"},
		"data of no stream": {func(c *rawClient) { c.check(c.framer.WriteRawFrame(http2.FrameData, 0, 0, say)) }, "GOAWAY PROTOCOL_ERROR"},
		"data of idle":      {func(c *rawClient) { c.check(c.framer.WriteData(1, true, say)) }, "GOAWAY PROTOCOL_ERROR"},
		"reset of idle":     {func(c *rawClient) { c.check(c.framer.WriteRSTStream(1, http2.ErrCodeCancel)) }, "GOAWAY PROTOCOL_ERROR"},
		"only padding": {func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 0}))
		}, "GOAWAY PROTOCOL_ERROR"},
		"broken off header": {func(c *rawClient) {
			c.check(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fields(usual("Say")...)}))
			c.check(c.framer.WritePing(false, [8]byte{}))
		}, "GOAWAY PROTOCOL_ERROR"},
		"no header block": {func(c *rawClient) {
			c.check(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true}))
		}, "GOAWAY COMPRESSION_ERROR"},
		"widened by 0":      {func(c *rawClient) { c.check(c.framer.WriteWindowUpdate(0, 0)) }, "GOAWAY PROTOCOL_ERROR"},
		"too wide":          {func(c *rawClient) { c.check(c.framer.WriteWindowUpdate(0, h2.MaxWindow)) }, "GOAWAY FLOW_CONTROL_ERROR"},
		"too large a frame": {func(c *rawClient) { _, _ = c.conn.Write([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}) }, "GOAWAY FRAME_SIZE_ERROR"},
		"short ping":        {func(c *rawClient) { c.check(c.framer.WriteRawFrame(http2.FramePing, 0, 0, []byte{1})) }, "GOAWAY FRAME_SIZE_ERROR"},
		"odd settings":      {func(c *rawClient) { c.check(c.framer.WriteRawFrame(http2.FrameSettings, 0, 0, []byte{1})) }, "GOAWAY FRAME_SIZE_ERROR"},
		"small frames": {func(c *rawClient) {
			c.check(c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}))
		}, "GOAWAY PROTOCOL_ERROR"},
		"a wide setting": {func(c *rawClient) {
			c.check(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}))
		}, "GOAWAY FLOW_CONTROL_ERROR"},
		"a push": {func(c *rawClient) { c.check(c.framer.WriteRawFrame(http2.FramePushPromise, 0, 1, make([]byte, 4))) }, "GOAWAY PROTOCOL_ERROR"},
		"a flood of pings": {func(c *rawClient) {
			for range 4 {
				c.check(c.framer.WritePing(false, [8]byte{}))
			}
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"endless header": {func(c *rawClient) {
			_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: nil})
			for range maxHeaderFrames + 1 {
				_ = c.framer.WriteContinuation(1, false, nil)
			}
		}, "GOAWAY ENHANCE_YOUR_CALM"},
	} {
		t.Run(name, func(t *testing.T) {
			client := s.raw(t)
			c.send(client)
			if got := client.outcome(1); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// replace returns pairs with another value for a name, or without it.
func replace(pairs []string, name, value string) []string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		switch {
		case pairs[i] != name:
			out = append(out, pairs[i], pairs[i+1])
		case value != "":
			out = append(out, name, value)
		}
	}
	return out
}

// The handler waits for the window of a client that does not read, so it does not
// read either, and the client's own window closes.
func TestClientThatOverrunsItsWindowIsReset(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t)
	c.open(1, false, usual("Chat")...)
	for sent := 0; sent <= streamWindow+h2.DefaultWindow; sent += 16000 {
		c.check(c.framer.WriteData(1, false, rawMessage(16000)))
	}
	if got := c.outcome(1); got != "RST FLOW_CONTROL_ERROR" {
		t.Errorf("got %s, want the stream reset", got)
	}
}

func TestConnectionRefusesMoreStreamsThanItTakes(t *testing.T) {
	s := start(t, Options{MaxStreams: 2})
	c := s.raw(t)
	for id := uint32(1); id <= 5; id += 2 {
		c.open(id, false, usual("Say")...)
	}
	if got := c.outcome(5); got != "RST REFUSED_STREAM" {
		t.Errorf("got %s, want the third stream refused", got)
	}
}

// The client's windows are heeded: an answer goes out as they open, and others
// do not wait for it.
func TestAnswersWaitForTheClientsWindows(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	c.open(1, false, usual("Say")...)
	c.check(c.framer.WriteData(1, true, rawMessage(1000)))
	c.open(3, false, usual("Say")...)
	c.check(c.framer.WriteData(3, true, rawMessage(1)))
	if got := c.outcome(3); got != "OK" {
		t.Errorf("got %s for the small answer, want it at once", got)
	}
	c.check(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}))
	c.check(c.framer.WriteWindowUpdate(1, 2000))
	if got := c.outcome(1); got != "OK" {
		t.Errorf("got %s for the large answer, want it", got)
	}
}

func TestClientWithoutATableOfFieldsIsUnderstood(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	c.framer.ReadMetaHeaders.SetMaxDynamicTableSize(0)
	for id := uint32(1); id <= 5; id += 2 {
		c.open(id, false, usual("Say")...)
		c.check(c.framer.WriteData(id, true, rawMessage(1)))
		if got := c.outcome(id); got != "OK" {
			t.Fatalf("got %s, want OK", got)
		}
	}
}

// A client that sends and does not read is not read from either, and what it
// makes the server hold is bounded. Stop ends it.
func TestClientThatDoesNotReadIsHeldUp(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: h2.MaxWindow})
	c.check(c.framer.WriteWindowUpdate(0, h2.MaxWindow-h2.DefaultWindow))
	_ = c.conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	var err error
	sent := 0
	for id := uint32(1); err == nil && sent < 1<<30; id += 2 {
		msg := rawMessage(16000)
		block := c.fields(usual("Say")...)
		err = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		if err == nil {
			err = c.framer.WriteData(id, true, msg)
		}
		sent += len(msg)
	}
	if err == nil {
		t.Fatalf("got %d bytes taken, want the client held up", sent)
	}
	if _, err := call1(testContext(t), s.conn, "Say", nil); err != nil {
		t.Errorf("another client: got %v, want an answer", err)
	}
}

func TestConnectionEndsAtItsAge(t *testing.T) {
	s := start(t, Options{Keepalive: keepalive.ServerParameters{MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: 20 * time.Millisecond}})
	c := s.raw(t)
	c.open(1, false, usual("Wait")...)
	c.check(c.framer.WriteData(1, true, rawMessage(1)))
	if f := c.frame(http2.FrameGoAway).(*http2.GoAwayFrame); f.ErrCode != http2.ErrCodeNo {
		t.Errorf("got %v, want a good end", f.ErrCode)
	}
	if got := c.outcome(1); got != "EOF" {
		t.Errorf("got %s, want the connection closed after its grace", got)
	}
}

func TestSilentConnectionIsPingedAndGivenUp(t *testing.T) {
	s := start(t, Options{Keepalive: keepalive.ServerParameters{Time: 20 * time.Millisecond, Timeout: 100 * time.Millisecond}})
	c := s.raw(t)
	f := c.frame(http2.FramePing).(*http2.PingFrame)
	c.check(c.framer.WritePing(true, f.Data))
	c.frame(http2.FramePing) // not answered
	if got := c.outcome(1); got != "EOF" {
		t.Errorf("got %s, want the connection closed", got)
	}
}

// frame returns the next frame of that type.
func (c *rawClient) frame(kind http2.FrameType) http2.Frame {
	c.tb.Helper()
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			c.tb.Fatalf("got %v, want a frame %v", err, kind)
		}
		if f.Header().Type == kind {
			return f
		}
	}
}

func TestConnectionThatSaysNothingIsClosed(t *testing.T) {
	s := start(t, Options{ConnectionTimeout: 20 * time.Millisecond})
	for name, say := range map[string]string{"nothing": "", "HTTP/1.1": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no settings": http2.ClientPreface} {
		conn, err := net.Dial("tcp", s.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		_, _ = io.WriteString(conn, say)
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: got an open connection, want it closed", name)
		}
		_ = conn.Close()
	}
}

// FuzzConnection has the server read anything after a client's greeting. It must
// neither panic nor hang: when the client is gone, so is the connection.
func FuzzConnection(f *testing.F) {
	c := &rawClient{tb: f}
	c.framer = http2.NewFramer(&c.block, nil)
	frame := func(kind http2.FrameType, flags byte, stream uint32, payload string) string {
		b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), byte(kind), flags, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(b[5:], stream)
		return string(b) + payload
	}
	// The header is spelled out: ":method: POST", ":scheme: http", and so on.
	header := "\x83\x86\x04\x0e/test.Echo/Say\x01\x04test\x0f\x10\x10application/grpc"
	f.Add([]byte(frame(1, 4, 1, header) + frame(0, 1, 1, string(rawMessage(3)))))
	f.Add([]byte(frame(1, 4, 1, header) + frame(0, 0, 1, "\x00\xff") + frame(3, 0, 1, "\x00\x00\x00\x08")))
	f.Add([]byte(frame(4, 0, 0, "\x00\x04\x00\x00\x00\x01") + frame(8, 0, 0, "\x00\x00\x00\x01") + frame(6, 0, 0, "12345678")))
	f.Add([]byte(frame(1, 0, 1, header[:5]) + frame(9, 4, 1, header[5:]) + frame(0, 9, 1, "\x02abcd")))
	s := New(Options{MaxReceive: 1 << 20, MaxSend: 1 << 20})
	e := newEcho()
	close(e.release)
	s.RegisterService(&echoDesc, e)
	f.Fuzz(func(t *testing.T, data []byte) {
		client, server := net.Pipe()
		s.start(server)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		_ = client.SetDeadline(time.Now().Add(testTimeout))
		_, _ = io.WriteString(client, http2.ClientPreface+frame(4, 0, 0, ""))
		_, _ = client.Write(data)
		_ = client.Close()
		s.open.Wait()
		s.handlers.Wait()
	})
}
