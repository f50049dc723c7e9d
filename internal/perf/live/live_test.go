package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"shoal/internal/load"
	"shoal/internal/perf/result"
)

func plan() *result.Plan {
	return &result.Plan{BatchSize: 1, Mode: result.TimeWindows, Window: 5 * time.Second, Stability: 0.1, MaxTrials: 10}
}

func histogram(latencies ...time.Duration) *load.Histogram {
	h := &load.Histogram{}
	for _, d := range latencies {
		h.Record(d)
	}
	return h
}

// silent is a report that says nothing.
type silent struct{}

func (silent) Begin(result.Load)           {}
func (silent) Progress(result.Progress)    {}
func (silent) Window(int, *result.Window)  {}
func (silent) End(*result.Level)           {}
func window(requests int64) *result.Window { return windowOf(requests, 6*time.Second) }

func windowOf(requests int64, d time.Duration) *result.Window {
	return &result.Window{
		Duration: d, Requests: requests, Rows: requests, Latency: histogram(4*time.Millisecond, 6*time.Millisecond),
		Server: &result.ServerStats{
			Inferences: 30, Executions: 10, Queue: result.Counted{Count: 10, Ns: 10e6}, Infer: result.Counted{Count: 10, Ns: 30e6},
		},
	}
}

// running returns a state in the second window of the second of four levels.
func running() *state {
	s := &state{plan: plan(), levels: 4}
	s.begin(result.Load{Mode: result.Concurrency, Value: 1})
	s.window(window(600))
	s.end(&result.Level{Load: s.load, Stable: true, Windows: make([]result.Window, 3), Merged: window(600)})
	s.begin(result.Load{Mode: result.Concurrency, Value: 8})
	for i := range 3 {
		s.window(window(6000 + int64(i)*60))
	}
	for i := range 5 {
		s.progress(result.Progress{
			Load: s.load, Trial: 2, Elapsed: 3 * time.Second, Window: windowOf(3000, 0), InFlight: 8,
			Tick:    result.Tick{At: time.Duration(i+1) * 100 * time.Millisecond, Requests: int64(100 * (i + 1))},
			Latency: histogram(4*time.Millisecond, 4*time.Millisecond, 40*time.Millisecond),
		})
	}
	return s
}

func TestLineHasWhatOneWantsToKnow(t *testing.T) {
	got := running().line(0)
	want := "c=8  window 2/3+  ▂▄▅▇█  1000/s  p50 4 ms p99 6 ms  in-flight 8  batch 3  queue▕██▏infer▕█████▏  spread 2.0%≤10%  err 0  ~9 s left  (level 2 of 4, ~45 s)"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLineFitsAndKeepsWhatMatters(t *testing.T) {
	s := running()
	s.failed = 7
	for width := 12; width < 200; width++ {
		got := s.line(width)
		if w := ansi.StringWidth(got); w > width {
			t.Errorf("width %d: got %d columns: %s", width, w, got)
		}
		if !strings.HasPrefix(got, "c=8") || width > 30 && (!strings.Contains(got, "1000/s") || !strings.Contains(got, "ERR 7")) {
			t.Errorf("width %d: load, throughput or errors are missing: %s", width, got)
		}
	}
}

func TestLineOfOtherPlans(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *state)
		want   string
	}{
		{"more windows than had to be", func(s *state) { s.trial = 5 }, "window 5 (most 10)"},
		{"windows that do not agree", func(s *state) { s.windows[2].Requests, s.windows[2].Rows = 9000, 9000 }, "spread 50.0%>10%"},
		{"an open loop", func(s *state) { s.load = result.Load{Mode: result.RequestRate, Value: 250} }, "rate=250"},
		{"a search, whose end is not known", func(s *state) { s.levels = 0 }, "(level 2)"},
		{"the last level", func(s *state) { s.level = 4 }, "(level 4 of 4)"},
		{"a number of requests", func(s *state) { s.plan.Mode, s.plan.RequestCount = result.RequestCount, 5000 }, "request 3000/5000"},
		{"the time that a number of requests takes", func(s *state) { s.plan.Mode, s.plan.RequestCount = result.RequestCount, 5000 }, "~2 s left"},
	} {
		s := running()
		c.change(s)
		if got := s.line(0); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", c.name, got, c.want)
		}
	}
}

func TestTimeLeftCountsWindowsAndLevels(t *testing.T) {
	s := running() // in the middle of window 2 of 3, and two levels to come
	level, run := s.left()
	if level != 9*time.Second || run != 45*time.Second {
		t.Errorf("got %v and %v, want 9s and 45s", level, run)
	}
	s.windowsDone = 5 // the level before needed five
	if level, _ := s.left(); level != 21*time.Second {
		t.Errorf("got %v, want 21s", level)
	}
}

func TestScreenFillsNoMoreThanTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{40, 10}, {80, 24}, {120, 50}, {300, 15}} {
		text := running().screen("digits", size[0], size[1])
		lines := strings.Split(text, "\n")
		if len(lines) > size[1] {
			t.Errorf("%v: got %d lines", size, len(lines))
		}
		for _, l := range lines {
			if ansi.StringWidth(l) > size[0] {
				t.Errorf("%v: a line of %d columns: %s", size, ansi.StringWidth(l), l)
			}
		}
	}
	text := ansi.Strip(running().screen("digits", 120, 40))
	for _, want := range []string{"digits", "level 2 of 4", "throughput", "latency", "3.16 ms ", "queue 1 ms", "infer 3 ms", "batch 3", "c=1", "Ctrl-C"} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
}

func TestHeatRowsDoNotOverlap(t *testing.T) {
	for row := range heatRows {
		if got := heatRow(heatFrom(row) + time.Microsecond); got != row {
			t.Errorf("what is just above %v is in row %d, want %d", heatFrom(row), got, row)
		}
	}
	if got := heatRow(time.Hour); got != heatRows-1 {
		t.Errorf("an hour is in row %d, want the last, %d", got, heatRows-1)
	}
}

func TestOldColumnsAreForgotten(t *testing.T) {
	s := running()
	for i := range 3 * maxColumns {
		s.progress(result.Progress{Trial: 1, Elapsed: time.Second, Window: windowOf(1, 0), Tick: result.Tick{At: time.Duration(i+10) * 100 * time.Millisecond}})
	}
	if len(s.columns) != maxColumns {
		t.Errorf("got %d columns, want %d", len(s.columns), maxColumns)
	}
}

func TestTheReportIsTheSameBelowTheLine(t *testing.T) {
	var screen, out bytes.Buffer
	v := Start(t.Context(), Options{Mode: Line, Out: &screen, Plan: plan(), Levels: 1})
	o := v.Observe(silent{})
	o.Begin(result.Load{Mode: result.Concurrency, Value: 8})
	o.Progress(result.Progress{Trial: 1, Elapsed: time.Second, Window: windowOf(10, 0)})
	if !strings.Contains(screen.String(), "c=8") {
		t.Errorf("got %q, want the line", screen.String())
	}
	fmt.Fprint(v.Hold(&out), "a report\n")
	if !strings.HasSuffix(screen.String(), clearLine) {
		t.Errorf("the line was not removed: %q", screen.String())
	}
	v.Close()
	if out.String() != "a report\n" {
		t.Errorf("got %q, want the report alone", out.String())
	}
}

func TestPlainLinesHaveNoControlCharacters(t *testing.T) {
	var out bytes.Buffer
	v := Start(t.Context(), Options{Mode: Plain, Out: &out, Plan: plan(), Levels: 1})
	o := v.Observe(silent{})
	o.Begin(result.Load{Mode: result.Concurrency, Value: 8})
	o.Progress(result.Progress{Trial: 1, Elapsed: time.Second, Window: windowOf(10, 0)})
	o.Window(1, window(600))
	v.Close()
	if want := "c=8  window 1/3+  100/s  p50 4 ms p99 6 ms  batch 3  err 0\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestOffShowsNothing(t *testing.T) {
	var out bytes.Buffer
	v := Start(t.Context(), Options{Mode: Off, Out: &out, Plan: plan()})
	if o := v.Observe(silent{}); o != (silent{}) {
		t.Errorf("got %T between the run and its report, want nothing", o)
	}
	v.Close()
	if out.Len() > 0 {
		t.Errorf("got %q, want nothing", out.String())
	}
}

// A terminal is written by Bubble Tea's goroutine and read by the test's.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen chan struct{} // buffered 1: something was written
}

func (w *terminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.seen <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *terminal) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

const (
	enter = "\x1b[?1049h"
	leave = "\x1b[?1049l"
)

// await waits until the terminal shows a text.
func (w *terminal) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(20 * time.Second); !strings.Contains(w.String(), text); {
		select {
		case <-w.seen:
		case <-deadline:
			t.Fatalf("the terminal does not show %q but %q", text, w.String())
		}
	}
}

func TestWhatIsWrittenWaitsForTheScreenToGo(t *testing.T) {
	screen := &terminal{seen: make(chan struct{}, 1)}
	var out bytes.Buffer
	v := Start(t.Context(), Options{Mode: Full, Out: screen, Plan: plan(), Levels: 1, Title: "digits"})
	screen.await(t, enter)
	fmt.Fprint(v.Hold(&out), "a report\n")
	fmt.Fprint(v.Hold(&out), "and more\n")
	if out.Len() > 0 {
		t.Errorf("got %q while the screen was up", out.String())
	}
	v.Close()
	v.Close()
	if !strings.Contains(screen.String(), leave) {
		t.Errorf("the screen did not go: %q", screen.String())
	}
	fmt.Fprint(v.Hold(&out), "the end\n")
	if want := "a report\nand more\nthe end\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestTheScreenGoesWhenTheRunIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	screen := &terminal{seen: make(chan struct{}, 1)}
	v := Start(ctx, Options{Mode: Full, Out: screen, Plan: plan()})
	screen.await(t, enter)
	cancel()
	screen.await(t, leave) // before Close: a second Ctrl-C finds a whole terminal
	v.Close()
}

func TestAKeyEndsTheRun(t *testing.T) {
	for name, key := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		keys, typed := io.Pipe()
		screen := &terminal{seen: make(chan struct{}, 1)}
		ended := make(chan struct{})
		v := Start(t.Context(), Options{Mode: Full, Out: screen, In: keys, Plan: plan(), Interrupt: func() { close(ended) }})
		screen.await(t, enter)
		if _, err := io.WriteString(typed, key); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s did not end the run", name)
		}
		screen.await(t, leave)
		_ = typed.Close()
		v.Close()
	}
}
