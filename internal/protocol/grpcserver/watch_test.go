package grpcserver

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"shoal/internal/protocol/h2"
)

func TestPace(t *testing.T) {
	const stall = 30 * time.Second
	begin := time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		step time.Duration
		size func(i int) int64 // what moves with each step
		want time.Duration     // when it is found slow; zero for never within an hour
	}{
		{"nothing", time.Second, func(int) int64 { return 0 }, 31 * time.Second},
		{"a byte each second", time.Second, func(int) int64 { return 1 }, 31 * time.Second},
		{"half the least rate", time.Second, func(int) int64 { return minRate / 2 }, 60 * time.Second},
		{"the least rate", time.Second, func(int) int64 { return minRate }, 0},
		{"much at once, then nothing", time.Second, func(i int) int64 {
			if i == 1 {
				return 1 << 30
			}
			return 0
		}, 32 * time.Second},
		{"much at once, then a byte each second", time.Second, func(i int) int64 {
			if i == 1 {
				return 1 << 30
			}
			return 1
		}, 32 * time.Second},
		{"a megabyte every 20 s", time.Second, func(i int) int64 {
			if i%20 == 0 {
				return 1 << 20
			}
			return 0
		}, 0},
	} {
		var p pace
		var moved int64
		var got time.Duration
		for i := 0; i <= 3600; i++ {
			moved += c.size(i)
			if p.slow(begin.Add(time.Duration(i)*c.step), moved, stall) {
				got = time.Duration(i) * c.step
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: got slow after %v, want %v", c.name, got, c.want)
		}
	}
}

// piped serves a client over a pipe, in a bubble with a clock of its own.
func piped(t *testing.T, opt Options, settings ...http2.Setting) (*testServer, *rawClient) {
	opt.MaxReceive, opt.MaxSend = 64<<20, 64<<20
	s := &testServer{Server: New(opt), echo: newEcho()}
	s.RegisterService(&echoDesc, s.echo)
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go s.watch(done)
	s.Server.start(ours)
	t.Cleanup(func() {
		_ = theirs.Close()
		s.Stop()
		close(done)
	})
	c := &rawClient{tb: t, conn: theirs, framer: http2.NewFramer(theirs, theirs)}
	c.framer.AllowIllegalWrites = true
	c.framer.SetMaxReadFrameSize(1 << 24)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.enc = hpack.NewEncoder(&c.block)
	go func() { // a pipe holds nothing
		_, _ = io.WriteString(theirs, http2.ClientPreface)
		_ = c.framer.WriteSettings(settings...)
	}()
	return s, c
}

// events reads what the server sends until it closes.
func (c *rawClient) events() <-chan string {
	list := make(chan string, 100)
	go func() {
		defer close(list)
		for {
			f, err := c.framer.ReadFrame()
			if err != nil && !errors.As(err, new(http2.StreamError)) {
				return
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				if f.StreamEnded() {
					list <- statusText(f)
				}
			case *http2.RSTStreamFrame:
				list <- "RST " + f.ErrCode.String()
			case *http2.GoAwayFrame:
				list <- "GOAWAY " + f.ErrCode.String()
			case *http2.DataFrame:
				list <- "DATA"
			}
		}
	}()
	return list
}

// TestSlowClientsAreEnded has clients stop, or nearly, at each point, and notes
// when and how the server ends it.
func TestSlowClientsAreEnded(t *testing.T) {
	message := rawMessage(100_000)
	closedWindow := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	drip := func(c *rawClient, b []byte) {
		for i := range b {
			if _, err := c.conn.Write(b[i : i+1]); err != nil {
				return
			}
			time.Sleep(700 * time.Millisecond) // not when the server looks
		}
	}
	header := func(c *rawClient) []byte {
		block := c.fields(usual("Say")...)
		return append(h2.AppendHeader(nil, len(block), http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1), block...)
	}
	for name, c := range map[string]struct {
		settings []http2.Setting
		send     func(c *rawClient)
		want     string
		about    time.Duration
	}{
		"a header byte by byte": {nil, func(c *rawClient) { drip(c, header(c)) }, "GOAWAY ENHANCE_YOUR_CALM", 10 * time.Second},
		"a header that stops":   {nil, func(c *rawClient) { _, _ = c.conn.Write(header(c)[:20]) }, "GOAWAY ENHANCE_YOUR_CALM", 10 * time.Second},
		"a header in frames that come slowly": {nil, func(c *rawClient) {
			block := c.fields(usual("Say")...)
			_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:5]})
			for {
				time.Sleep(time.Second)
				if c.framer.WriteContinuation(1, false, nil) != nil {
					return
				}
			}
		}, "GOAWAY ENHANCE_YOUR_CALM", 10 * time.Second},
		"no message": {nil, func(c *rawClient) { c.open(1, false, usual("Say")...) }, "DeadlineExceeded", 30 * time.Second},
		"half a message": {nil, func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			_ = c.framer.WriteData(1, false, message[:1000])
		}, "DeadlineExceeded", 31 * time.Second},
		"half a message of a stream": {nil, func(c *rawClient) {
			c.open(1, false, usual("Chat")...)
			_ = c.framer.WriteData(1, false, message[:1000])
		}, "DeadlineExceeded", 31 * time.Second},
		"a message in frames of a byte": {nil, func(c *rawClient) {
			c.open(1, false, usual("Chat")...)
			for i := range message {
				if c.framer.WriteData(1, false, message[i:i+1]) != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, "DeadlineExceeded", 31 * time.Second},
		"a message without its end": {nil, func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			_ = c.framer.WriteData(1, false, rawMessage(1))
		}, "DeadlineExceeded", 30 * time.Second},
		"a frame byte by byte": {nil, func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			_, _ = c.conn.Write(h2.AppendHeader(nil, 100_000, http2.FrameData, 0, 1))
			drip(c, message)
		}, "GOAWAY ENHANCE_YOUR_CALM", 31 * time.Second},
		"a window that stays closed": {[]http2.Setting{closedWindow}, func(c *rawClient) {
			c.open(1, false, usual("Count")...)
			_ = c.framer.WriteData(1, true, rawMessage(10))
		}, "DeadlineExceeded", 31 * time.Second},
		"a window that opens byte by byte": {[]http2.Setting{closedWindow}, func(c *rawClient) {
			c.open(1, false, usual("Count")...)
			_ = c.framer.WriteData(1, true, rawMessage(1000))
			for c.framer.WriteWindowUpdate(1, 1) == nil {
				time.Sleep(700 * time.Millisecond)
			}
		}, "RST CANCEL", 31 * time.Second},
		"a connection's window that stays closed": {nil, func(c *rawClient) {
			c.open(1, false, usual("Say")...)
			_ = c.framer.WriteWindowUpdate(1, 1<<20)
			_ = c.framer.WriteData(1, true, message)
		}, "GOAWAY ENHANCE_YOUR_CALM", 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := piped(t, Options{}, c.settings...)
				events := client.events()
				synctest.Wait() // the settings are sent
				begin := time.Now()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					c.send(client)
				}()
				var got string
				for got = range events {
					if got != "DATA" {
						break
					}
				}
				after := time.Since(begin)
				if got != c.want || after < c.about || after > c.about+4*time.Second {
					t.Errorf("got %q after %v, want %s after about %v", got, after, c.want, c.about)
				}
				_ = client.conn.Close()
				for range events {
				}
				<-sent
			})
		})
	}
}

// TestUnreadPipeIsClosed has a client that sends a call and reads nothing.
func TestUnreadPipeIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := piped(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		for range 3 { // the server's settings, its window, and its word on ours
			_, err := c.framer.ReadFrame()
			c.check(err)
		}
		synctest.Wait() // ours are sent
		c.open(1, false, usual("Say")...)
		c.check(c.framer.WriteData(1, true, rawMessage(10_000)))
		time.Sleep(29 * time.Second)
		if _, err := c.conn.Write(h2.AppendPing(nil, http2.FlagPingAck, [8]byte{})); err != nil {
			t.Errorf("after 29 s: got %v, want it open", err)
		}
		time.Sleep(6 * time.Second)
		if _, err := c.conn.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after 35 s: got %v, want it closed", err)
		}
	})
}

// TestQuietAndSlowClientsLiveOn has clients that are slow for good reasons.
func TestQuietAndSlowClientsLiveOn(t *testing.T) {
	for name, play := range map[string]func(c *rawClient, s *testServer){
		"a stream that rests between messages": func(c *rawClient, _ *testServer) {
			c.open(1, false, usual("Chat")...)
			for range 10 {
				time.Sleep(10 * time.Minute)
				c.check(c.framer.WriteData(1, false, rawMessage(5)))
			}
			c.check(c.framer.WriteData(1, true, nil))
		},
		"a message at twice the least rate": func(c *rawClient, _ *testServer) {
			c.check(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 24}))
			c.check(c.framer.WriteWindowUpdate(0, 1<<24))
			c.open(1, false, usual("Say")...)
			for m := rawMessage(1 << 20); len(m) > 0; time.Sleep(time.Second) {
				part := m[:min(len(m), 2*minRate)]
				m = m[len(part):]
				c.check(c.framer.WriteData(1, len(m) == 0, part))
			}
		},
		"an answer that is taken at twice the least rate": func(c *rawClient, _ *testServer) {
			c.check(c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			c.check(c.framer.WriteWindowUpdate(0, 1<<24))
			c.open(1, false, usual("Say")...)
			c.check(c.framer.WriteData(1, true, rawMessage(500_000)))
			for range 300 {
				time.Sleep(time.Second)
				c.check(c.framer.WriteWindowUpdate(1, 2*minRate))
			}
		},
		"a model that takes an hour": func(c *rawClient, s *testServer) {
			c.open(1, false, usual("Wait")...)
			c.check(c.framer.WriteData(1, true, rawMessage(5)))
			time.Sleep(time.Hour)
			close(s.echo.release)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := piped(t, Options{})
				events := c.events()
				synctest.Wait() // the settings are sent
				played := make(chan struct{})
				go func() {
					defer close(played)
					play(c, s)
				}()
				for got := range events {
					if got != "DATA" {
						if got != "OK" {
							t.Errorf("got %s, want OK", got)
						}
						break
					}
				}
				<-played
				_ = c.conn.Close()
				for range events {
				}
			})
		})
	}
}

// The server's texts name the flag.
func TestSlowClientIsToldTheFlag(t *testing.T) {
	c := newConn(New(Options{}), nil)
	if got := c.late("the client sends"); !strings.Contains(got, "--grpc-message-timeout-secs") || !strings.Contains(got, "30s") {
		t.Errorf("got %q, want the flag and the time", got)
	}
}
