package logsink

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A gated stream takes what is written only while it is open.
type gated struct {
	open chan struct{} // a write receives from it first

	mu  sync.Mutex // protects the fields below
	buf bytes.Buffer
	err error // what writes end with
	max int   // how many bytes are still taken before err
}

func (g *gated) Write(p []byte) (int, error) {
	if g.open != nil {
		<-g.open
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		n := min(g.max, len(p))
		g.max -= n
		g.buf.Write(p[:n])
		return n, g.err
	}
	return g.buf.Write(p)
}

func (g *gated) fail(err error, after int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err, g.max = err, after
}

func (g *gated) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.String()
}

func say(t *testing.T, s *Sink, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...) + "\n"
	if n, err := s.Write([]byte(line)); n != len(line) || err != nil {
		t.Errorf("got %d, %v for a line of %d bytes, want it taken", n, err, len(line))
	}
}

func TestLinesAreWrittenInOrder(t *testing.T) {
	g := &gated{}
	s := Start(g, Options{})
	for i := range 1000 {
		say(t, s, "%d", i)
	}
	if !s.Flush(10 * time.Second) {
		t.Error("got a flush that ran out of time")
	}
	lines := strings.Split(strings.TrimSpace(g.String()), "\n")
	if len(lines) != 1000 || lines[0] != "0" || lines[999] != "999" {
		t.Errorf("got %d lines, want 0 to 999", len(lines))
	}
	if !s.Close(10*time.Second) || s.Dropped() != 0 {
		t.Errorf("got %d lines dropped, want all written", s.Dropped())
	}
}

func TestAStalledStreamBlocksNobodyAndTheLossIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{open: make(chan struct{})}
		s := Start(g, Options{Size: 100})
		say(t, s, "in the write that stalls")
		synctest.Wait()
		for i := range 20 {
			say(t, s, "line %2d", i) // 8 bytes: twelve fit
		}
		if got := s.Dropped(); got != 8 {
			t.Errorf("got %d lines dropped, want 8", got)
		}
		if s.Flush(time.Second) {
			t.Error("got a flush that ended, want it to run out of time")
		}
		close(g.open)
		synctest.Wait()
		say(t, s, "after")
		if !s.Close(time.Second) {
			t.Error("the sink did not close in time")
		}
		lines := strings.Split(strings.TrimSpace(g.String()), "\n")
		want := "8 log lines were dropped here: the log could not be written, or not fast enough"
		if len(lines) != 15 || lines[12] != "line 11" || lines[13] != want || lines[14] != "after" {
			t.Errorf("got %q, want twelve lines, then that 8 are missing, then what came after", lines)
		}
	})
}

func TestAStreamThatFailsLosesLinesUntilItTakesThemAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{}
		s := Start(g, Options{})
		g.fail(errors.New("no space left on device"), 3)
		say(t, s, "cut here")
		synctest.Wait()
		say(t, s, "lost")
		synctest.Wait()
		if got := s.Dropped(); got != 2 {
			t.Errorf("got %d lines dropped, want 2", got)
		}
		g.fail(nil, 0)
		say(t, s, "there is room again")
		if !s.Close(time.Second) {
			t.Error("the sink did not close in time")
		}
		want := "cut\nthere is room again\n" + string(plainNotice(2))
		if got := g.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestCloseDoesNotWaitForAStreamThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{open: make(chan struct{})}
		s := Start(g, Options{})
		say(t, s, "the last words")
		begin := time.Now()
		if s.Close(250*time.Millisecond) || time.Since(begin) != 250*time.Millisecond {
			t.Errorf("got a close after %v, want it given up after exactly 250ms", time.Since(begin))
		}
		close(g.open)
		<-s.ended
		if got := g.String(); got != "the last words\n" {
			t.Errorf("got %q, want the line that was pending", got)
		}
		say(t, s, "too late")
		if got := s.Dropped(); got != 1 {
			t.Errorf("got %d lines dropped, want the one after the close", got)
		}
	})
}

func TestAPipeThatIsReadLateLosesNothingThatFits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := Start(w, Options{Size: 64 << 20})
	line := strings.Repeat("x", 1023)
	const count = 4096 // far more than a pipe holds
	for range count {
		say(t, s, "%s", line)
	}
	read := make(chan int)
	go func() {
		n := 0
		for in := bufio.NewScanner(r); in.Scan(); n++ {
			if in.Text() != line {
				t.Errorf("line %d: got %q, want it whole", n, in.Text())
			}
		}
		read <- n
	}()
	if !s.Close(30 * time.Second) {
		t.Error("the sink did not close in time")
	}
	_ = w.Close()
	if got := <-read; got != count || s.Dropped() != 0 {
		t.Errorf("got %d lines and %d dropped, want %d and 0", got, s.Dropped(), count)
	}
}

func TestAPipeWithoutAReaderCostsOnlyLines(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer w.Close()
	s := Start(w, Options{})
	for i := range 10 {
		say(t, s, "%d", i)
		s.Flush(10 * time.Second)
	}
	if got := s.Dropped(); got != 10 {
		t.Errorf("got %d lines dropped, want 10", got)
	}
	if !s.Close(10 * time.Second) {
		t.Error("the sink did not close in time")
	}
}

func TestSlogNoticeHasTheFormOfTheLog(t *testing.T) {
	notice := SlogNotice(func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) })
	if got := string(notice(3)); !strings.Contains(got, `"msg":"3 log lines were dropped here`) || !strings.HasSuffix(got, "}\n") {
		t.Errorf("got %q, want a JSON line", got)
	}
}

func TestALineCostsNoAllocation(t *testing.T) {
	s := Start(io.Discard, Options{})
	defer s.Close(time.Second)
	line := []byte("a line of an ordinary length\n")
	for range 100 { // both buffers get their size
		for range 1000 {
			_, _ = s.Write(line)
		}
		s.Flush(time.Second)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = s.Write(line) }); n > 0 {
		t.Errorf("got %v allocations for a line, want none", n)
	}
}

// Lines that come within the delay are one write; a flush and much to write do not
// wait for it.
func TestLinesWaitForOthersAsLongAsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &counted{}
		s := Start(w, Options{Size: 1 << 10, Delay: time.Second})
		begin := time.Now()
		for i := range 3 {
			say(t, s, "line %d", i)
		}
		synctest.Wait()
		if n := w.count(); n != 0 {
			t.Errorf("got %d writes before the delay, want none", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := w.count(); n != 1 {
			t.Errorf("got %d writes after it, want 1", n)
		}
		say(t, s, "%s", strings.Repeat("x", 500)) // more than a quarter of the room
		synctest.Wait()
		if n := w.count(); n != 2 {
			t.Errorf("got %d writes of much, want another one at once", n)
		}
		say(t, s, "last")
		if !s.Flush(time.Minute) || w.count() != 3 {
			t.Errorf("got %d writes after a flush, want 3", w.count())
		}
		say(t, s, "more")
		if !s.Close(time.Minute) || w.count() != 4 {
			t.Errorf("got %d writes after Close, want 4", w.count())
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want nothing but the one delay", took)
		}
	})
}

// counted counts writes.
type counted struct {
	mu sync.Mutex
	n  int
}

func (c *counted) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return len(p), nil
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
