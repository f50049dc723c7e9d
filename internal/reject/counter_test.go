package reject

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lookup knows one model with version 3, and one that is not ready.
func lookup(model string, version int64) (bool, int64) {
	switch {
	case model == "m" && (version == -1 || version == 3):
		return true, 3
	case model == "m" || model == "broken":
		return true, NoVersion
	}
	return false, NoVersion
}

var client = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 5000}

func newCounter(level slog.Level) (*Counter, *lines) {
	l := new(lines)
	return New(lookup, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))), l
}

// lines is a log that tests read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSuffix(l.b.String(), "\n")
	l.b.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestRequestsCountForTheVersionThatTheyReach(t *testing.T) {
	cases := []struct {
		name    string
		model   string
		version int64
		counted target
	}{
		{"the latest version", "m", -1, target{"m", 3}},
		{"a version by number", "m", 3, target{"m", 3}},
		{"a version that is not there", "m", 4, target{"m", NoVersion}},
		{"a model that is not ready", "broken", -1, target{"broken", NoVersion}},
		{"a model that does not exist", "nosuch", -1, target{"", NoVersion}},
		{"no model", "", -1, target{"", NoVersion}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := newCounter(slog.LevelInfo)
			c.Request(Request{Protocol: GRPC, Model: tc.model, Version: tc.version, Reason: BadInput})
			if got := c.Requests(tc.counted.model, tc.counted.version)[GRPC][BadInput]; got != 1 {
				t.Errorf("%+v has %d, want 1", tc.counted, got)
			}
			if got := c.Requests(tc.counted.model, tc.counted.version)[HTTP][BadInput]; got != 0 {
				t.Errorf("HTTP has %d, want 0", got)
			}
		})
	}
}

func TestUnknownNamesMakeNoCounts(t *testing.T) {
	c, _ := newCounter(slog.LevelInfo)
	for i := range 1000 {
		c.Request(Request{Model: fmt.Sprint("x", i), Version: int64(i), Reason: UnknownModel})
		c.Request(Request{Model: "m", Version: int64(100 + i), Reason: UnknownModel})
	}
	if got := len(c.models); got != 1 {
		t.Errorf("%d models have counts, want 1: the one that exists, without a version", got)
	}
	if got := c.Requests("", NoVersion)[HTTP][UnknownModel]; got != 1000 {
		t.Errorf("%d requests for no model, want 1000", got)
	}
	if got := c.Unversioned(); len(got) != 1 || got[0] != "m" {
		t.Errorf("models without a version: %q, want m alone", got)
	}
}

func TestNoReasonIsNoRejection(t *testing.T) {
	c, log := newCounter(slog.LevelDebug)
	c.Request(Request{Model: "m", Reason: None})
	if c.Requests("m", 3)[HTTP][None] != 0 || log.take() != nil {
		t.Error("a request without a reason was counted or logged")
	}
	var none *Counter
	none.Request(Request{Reason: BadInput})
	none.Closed(HTTP, IdleTimeout, nil, "")
	none.Close()
	if none.Requests("m", 3)[HTTP][BadInput] != 0 || none.Connections(HTTP, IdleTimeout) != 0 || none.Unversioned() != nil {
		t.Error("a nil counter has counts")
	}
}

func TestAClosedConnectionIsARejectionWhenNobodyElseSaysSo(t *testing.T) {
	c, _ := newCounter(slog.LevelInfo)
	for why := range CloseCount {
		c.Closed(GRPC, why, client, "")
		if got := c.Connections(GRPC, why); got != 1 {
			t.Errorf("%v has %d connections, want 1", why, got)
		}
		if c.Connections(HTTP, why) != 0 {
			t.Errorf("%v was counted for HTTP", why)
		}
	}
	for r := range ReasonCount {
		want := map[Reason]uint64{Overloaded: 1, Timeout: 1}[r]
		if got := c.Requests("", NoVersion)[GRPC][r]; got != want {
			t.Errorf("%v has %d rejected requests, want %d", r, got, want)
		}
	}
}

func TestEveryReasonHasAName(t *testing.T) {
	seen := make(map[string]bool)
	for r := range ReasonCount {
		seen[r.String()] = true
	}
	for c := range CloseCount {
		seen[c.String()] = true
	}
	if want := int(ReasonCount) + int(CloseCount); len(seen) != want || seen[""] {
		t.Errorf("%d different names, want %d and none empty", len(seen), want)
	}
}

func TestLogHasOneLineForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := newCounter(slog.LevelDebug)
		defer c.Close()
		c.Request(Request{GRPC, client, "m\nx\xff" + strings.Repeat("y", 1000), -1, UnknownModel, "no such \"thing\""})
		got := log.take()
		if len(got) != 1 {
			t.Fatalf("got %d lines, want 1: %q", len(got), got)
		}
		for _, want := range []string{"protocol=grpc", "client=10.0.0.7:5000", `model="m\nx`, "reason=unknown_model", `answer="no such \"thing\""`} {
			if !strings.Contains(got[0], want) {
				t.Errorf("got %s, want %s in it", got[0], want)
			}
		}
		if len(got[0]) > 600 {
			t.Errorf("the line has %d bytes, want the client's text cut to %d", len(got[0]), clipAt)
		}
	})
}

func TestLogIsLimitedAndSaysWhatItLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := newCounter(slog.LevelDebug)
		bad := func(n int, r Reason) {
			for range n {
				c.Request(Request{Model: "m", Version: -1, Reason: r})
			}
		}
		bad(100_000, Malformed)
		bad(1, BadInput) // the flood of one reason does not hide another
		if got := len(log.take()); got != linesPerWindow+1 {
			t.Errorf("got %d lines at once, want %d", got, linesPerWindow+1)
		}
		time.Sleep(window)
		synctest.Wait()
		got := log.take()
		if want := fmt.Sprintf("reason=malformed count=%d", 100_000-linesPerWindow); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("got %q at the end of the window, want one line with %s", got, want)
		}
		bad(linesPerWindow, Malformed)
		for range linesPerWindow + 2 {
			c.Closed(HTTP, IdleTimeout, client, "")
		}
		if got := len(log.take()); got != 2*linesPerWindow {
			t.Errorf("got %d lines in the next window, want %d", got, 2*linesPerWindow)
		}
		c.Close()
		if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "reason=idle_timeout count=2") {
			t.Errorf("got %q when closed, want one line with what was left out", got)
		}
		bad(1, Malformed)
		if got := log.take(); got != nil {
			t.Errorf("logged after Close: %q", got)
		}
		if got := c.Requests("m", 3)[HTTP][Malformed]; got != 100_000+linesPerWindow+1 {
			t.Errorf("counted %d, want every one", got)
		}
	})
}

func TestReasonOfLooksThroughWrappers(t *testing.T) {
	err := fmt.Errorf("a: %w", fmt.Errorf("b: %w", reasonError(TooLarge)))
	if got := ReasonOf(err); got != TooLarge {
		t.Errorf("got %v, want %v", got, TooLarge)
	}
	if got := ReasonOf(fmt.Errorf("a")); got != None {
		t.Errorf("got %v, want %v", got, None)
	}
}

type reasonError Reason

func (e reasonError) Error() string     { return "rejected" }
func (e reasonError) Rejection() Reason { return Reason(e) }

// BenchmarkFlood is what one more bad request costs while the log is full.
func BenchmarkFlood(b *testing.B) {
	c, _ := newCounter(slog.LevelDebug)
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		c.Request(Request{GRPC, client, "m", -1, Malformed, "no"})
	}
}
