package grpcserver

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"shoal/internal/protocol/h2"
)

// blockedConn returns a connection without a socket, and n calls on it that wait
// to send.
func blockedConn(n int, window int64) (*conn, []*call) {
	c := newConn(New(Options{}), nil)
	c.writing = true // by nobody
	c.outWindow = 0
	calls := make([]*call, n)
	for i := range calls {
		s := &call{conn: c, id: uint32(2*i + 1), outWindow: window - c.settings.window, wake: make(chan struct{}, 1)}
		c.streams[s.id] = s
		c.enlistLocked(s)
		calls[i] = s
	}
	return c, calls
}

// woken returns which calls were woken, and takes the signals.
func woken(calls []*call) (list []int) {
	for i, s := range calls {
		select {
		case <-s.wake:
			list = append(list, i)
		default:
		}
	}
	return list
}

// TestWindowUpdateWakesOneCallInTurn counts the calls that each frame wakes.
func TestWindowUpdateWakesOneCallInTurn(t *testing.T) {
	c, calls := blockedConn(1000, 100)
	for i := range 3000 {
		if err := c.widen(1); err != nil {
			t.Fatal(err)
		}
		want := []int{i % len(calls)}
		if got := woken(calls); !slices.Equal(got, want) {
			t.Fatalf("update %d: got %v woken, want %v", i, got, want)
		}
		// It sends its byte and waits again, behind the others.
		s := calls[i%len(calls)]
		c.sentLocked(s, 1)
		c.passLocked(s)
		c.enlistLocked(s)
	}
	// One that is woken passes its turn on while there is something to send.
	if err := c.widen(10 * turnSize); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		got := woken(calls)
		if len(got) != 1 {
			t.Fatalf("got %v woken, want one", got)
		}
		c.passLocked(calls[got[0]])
	}
}

// TestResizedWindowsCostWhatTheyWake resizes the windows of many streams, over
// and over, as SETTINGS do.
func TestResizedWindowsCostWhatTheyWake(t *testing.T) {
	c, calls := blockedConn(1000, 0)
	frame := func(sizes ...uint32) []byte {
		var b []byte
		for _, v := range sizes {
			b = binary.BigEndian.AppendUint16(b, uint16(http2.SettingInitialWindowSize))
			b = binary.BigEndian.AppendUint32(b, v)
		}
		return b
	}
	work, err := c.set(frame(h2.DefaultWindow - 1))
	if err != nil || work != 0 {
		t.Errorf("smaller windows: got work %d, %v, want none", work, err)
	}
	// Many settings in a frame are as one.
	if work, err = c.set(frame(slices.Repeat([]uint32{0, 1 << 20}, 1000)...)); err != nil || work != len(calls) {
		t.Errorf("larger windows: got work %d, %v, want %d", work, err, len(calls))
	}
	if work, err = c.set(frame(1<<20 + 1)); err != nil || work != 0 {
		t.Errorf("larger windows of nobody that is starved: got work %d, %v, want none", work, err)
	}
	if !c.widenLocked(calls[5], h2.MaxWindow-c.windowLocked(calls[5])) {
		t.Error("the largest window: got refused, want it taken")
	}
	if _, err = c.set(frame(1<<20 + 2)); err == nil {
		t.Error("a window that became too large: got no error, want one")
	}
}

// TestWindowsAreServedWhateverOrder plays random windows, sizes and calls with
// senders of their own: all that the windows allow is sent, and no more.
func TestWindowsAreServedWhateverOrder(t *testing.T) {
	s := start(t, Options{Enforcement: keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}})
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 5))
		c := s.raw(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(r.IntN(2000))})
		const streams = 20
		left := make(map[uint32]int)
		for i := range streams {
			id := uint32(2*i + 1)
			c.open(id, false, usual("Say")...)
			message := rawMessage(1 + r.IntN(40_000))
			for rest := message; ; {
				part := rest[:min(len(rest), 16<<10)]
				rest = rest[len(part):]
				c.check(c.framer.WriteData(id, len(rest) == 0, part))
				if len(rest) == 0 {
					break
				}
			}
			left[id] = len(message)
		}
		for len(left) > 0 {
			switch n := uint32(1 + r.IntN(1<<r.IntN(16))); r.IntN(4) {
			case 0:
				c.check(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}))
			case 1:
				c.check(c.framer.WriteWindowUpdate(0, n))
			default:
				c.check(c.framer.WriteWindowUpdate(uint32(2*r.IntN(streams)+1), n))
			}
			c.check(c.framer.WritePing(false, [8]byte{1}))
			for done := false; !done; {
				f, err := c.framer.ReadFrame()
				c.check(err)
				switch f := f.(type) {
				case *http2.PingFrame:
					done = true
				case *http2.DataFrame:
					if left[f.StreamID] -= len(f.Data()); left[f.StreamID] < 0 {
						t.Fatalf("seed %d: got more of stream %d than its message", seed, f.StreamID)
					}
				case *http2.MetaHeadersFrame:
					if f.StreamEnded() {
						if left[f.StreamID] != 0 {
							t.Fatalf("seed %d: got the end of stream %d with %d bytes left", seed, f.StreamID, left[f.StreamID])
						}
						delete(left, f.StreamID)
					}
				case *http2.GoAwayFrame:
					t.Fatalf("seed %d: got %v", seed, f)
				}
			}
		}
	}
}

// floods are frames that cost the server something and are for nothing.
func floods() map[string]func(c *rawClient) []byte {
	frame := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload ...byte) []byte {
		return append(h2.AppendHeader(nil, len(payload), kind, flags, stream), payload...)
	}
	always := func(b []byte) func(*rawClient) []byte { return func(*rawClient) []byte { return b } }
	begun := func(b []byte) func(*rawClient) []byte {
		return func(c *rawClient) []byte { c.open(1, false, usual("Wait")...); return b }
	}
	return map[string]func(c *rawClient) []byte{
		"SETTINGS":                always(frame(http2.FrameSettings, 0, 0)),
		"SETTINGS of a window":    begun(append(frame(http2.FrameSettings, 0, 0, 0, 4, 0, 0, 0, 0), frame(http2.FrameSettings, 0, 0, 0, 4, 0, 1, 0, 0)...)),
		"PING":                    always(frame(http2.FramePing, 0, 0, make([]byte, 8)...)),
		"answers to no PING":      always(frame(http2.FramePing, http2.FlagPingAck, 0, make([]byte, 8)...)),
		"WINDOW_UPDATE":           always(frame(http2.FrameWindowUpdate, 0, 0, 0, 0, 0, 1)),
		"WINDOW_UPDATE of stream": begun(frame(http2.FrameWindowUpdate, 0, 1, 0, 0, 0, 1)),
		"PRIORITY":                always(frame(http2.FramePriority, 0, 1, 0, 0, 0, 0, 9)),
		"DATA without data":       begun(frame(http2.FrameData, 0, 1)),
		"unknown frames":          always(frame(99, 0, 0)),
		"GOAWAY":                  always(frame(http2.FrameGoAway, 0, 0, make([]byte, 8)...)),
	}
}

// flood writes b over and over until the server closes, and reports how much it
// took.
func (c *rawClient) flood(b []byte, most int) <-chan int {
	written := make(chan int, 1)
	go func() {
		chunk := bytes.Repeat(b, max(1, 16<<10/len(b)))
		n := 0
		for n < most {
			m, err := c.conn.Write(chunk)
			if n += m; err != nil {
				break
			}
		}
		written <- n
	}()
	return written
}

func TestFloodsEndTheConnection(t *testing.T) {
	s := start(t, Options{Enforcement: keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}})
	for name, prepare := range floods() {
		t.Run(name, func(t *testing.T) {
			c := s.raw(t)
			c.flood(prepare(c), 16<<20)
			if got := c.outcome(1); got != "GOAWAY ENHANCE_YOUR_CALM" {
				t.Errorf("got %s, want GOAWAY ENHANCE_YOUR_CALM", got)
			}
		})
	}
}

// TestRapidResetsEndTheConnection opens calls and takes them back.
func TestRapidResetsEndTheConnection(t *testing.T) {
	s := start(t, Options{})
	close(s.echo.release)
	c := s.raw(t)
	c.open(1, true, usual("Wait")...)
	block := c.fields(usual("Wait")...)
	go func() {
		var b []byte
		for id := uint32(3); id < 2_000_000; id += 2 {
			b = append(h2.AppendHeader(b, len(block), http2.FrameHeaders, http2.FlagHeadersEndHeaders, id), block...)
			b = h2.AppendNumber(b, http2.FrameRSTStream, id, uint32(http2.ErrCodeCancel))
			if len(b) > 16<<10 {
				if _, err := c.conn.Write(b); err != nil {
					return
				}
				b = b[:0]
			}
		}
	}()
	if got := c.outcome(0); got != "GOAWAY ENHANCE_YOUR_CALM" {
		t.Errorf("got %s, want GOAWAY ENHANCE_YOUR_CALM", got)
	}
}

func TestMeterIsPaidByCallsAndTime(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		work  int
		paid  int
		after time.Duration
		want  bool
	}{
		{"a flood", maxWork + 1, 0, 0, false},
		{"a flood in two seconds", maxWork + 1, 0, 2 * time.Second, false},
		{"half is paid", maxWork + 1, maxWork/2 + 1, 0, true},
		{"slow enough", maxWork + 1, 0, 6 * time.Second, true},
		{"after a day", maxWork + 1, 0, 24 * time.Hour, true},
		{"much is paid", maxWork + 1, 1 << 40, 0, true},
	} {
		m := meter{work: c.work, last: begin}
		if got := m.weigh(begin.Add(c.after), c.paid); got != c.want || m.work < 0 {
			t.Errorf("%s: got %v with %d left, want %v", c.name, got, m.work, c.want)
		}
	}
}

// A tap records what the client of its newest connection sends.
type tap struct {
	net.Listener
	mu     sync.Mutex
	newest *tapConn
}

type tapConn struct {
	net.Conn
	tap  *tap
	sent bytes.Buffer // under the tap's mutex
}

func (l *tap) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	t := &tapConn{Conn: c, tap: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = t
	return t, err
}

func (c *tapConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.sent.Write(b[:n])
	return n, err
}

// work returns what the client's frames cost.
func (l *tap) work() (frames, work int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := bytes.TrimPrefix(l.newest.sent.Bytes(), []byte(http2.ClientPreface))
	for len(b) >= h2.HeaderLen {
		h := h2.ParseHeader(b)
		b = b[min(len(b), h2.HeaderLen+h.Length):] // the last may be broken off
		frames++
		work += frameCost(h)
	}
	return frames, work
}

// TestRealClientPaysForItsFrames has grpc-go make calls of all kinds: its pings
// and window updates stay far below what the calls pay for.
func TestRealClientPaysForItsFrames(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &tap{Listener: inner}
	s := start(t, Options{})
	go func() { _ = s.Serve(l) }()
	s.addr = inner.Addr()
	for name, play := range map[string]func(conn *grpc.ClientConn) (paid int){
		"small calls": func(conn *grpc.ClientConn) int {
			for range 1000 {
				if _, err := call1(testContext(t), conn, "Say", []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			return 1000 * businessCall
		},
		"large calls": func(conn *grpc.ClientConn) int {
			for range 8 {
				if _, err := call1(testContext(t), conn, "Say", make([]byte, 4<<20)); err != nil {
					t.Fatal(err)
				}
			}
			return 8*businessCall + 8<<22/businessBytes
		},
		"a stream of small messages": func(conn *grpc.ClientConn) int { return converse(t, conn, 1000, 1) },
		"a stream of large messages": func(conn *grpc.ClientConn) int { return converse(t, conn, 20, 1<<20) },
	} {
		conn := s.dial(t)
		paid := play(conn)
		frames, work := l.work()
		_ = conn.Close()
		t.Logf("%s: %d frames, work %d, paid %d", name, frames, work, paid)
		if 2*work > paid {
			t.Errorf("%s: got work %d in %d frames, want at most half of what was paid, %d", name, work, frames, paid)
		}
	}
}

// converse sends messages over a stream, each when the one before is answered,
// and returns what that pays.
func converse(t *testing.T, conn *grpc.ClientConn, n, size int) int {
	stream, err := conn.NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	m := wrapperspb.Bytes(make([]byte, size))
	for range n {
		if err := stream.SendMsg(m); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
			t.Fatal(err)
		}
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err != io.EOF {
		t.Fatal(err)
	}
	return businessCall + n*businessMessage + n*size/businessBytes
}
