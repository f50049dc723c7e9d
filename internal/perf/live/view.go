package live

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"shoal/internal/perf/result"
)

// A Mode says how much is shown.
type Mode string

// The modes.
const (
	Off   Mode = "off"
	Plain Mode = "plain" // a line for each window, for a file or a pipe
	Line  Mode = "line"  // a line that moves
	Full  Mode = "full"  // a screen
)

// Times between redraws. Five lines a second cost nothing measurable; five
// screens a second took 2 % of the throughput on two cores shared by client and
// server.
const (
	lineFrame   = 200 * time.Millisecond
	screenFrame = 500 * time.Millisecond
)

// Options say what is shown and where.
type Options struct {
	Mode   Mode
	Out    io.Writer  // where it is drawn: a terminal, unless the mode is Plain
	In     io.Reader  // the screen's keys; nil: none
	Width  func() int // columns of the terminal; 0 when not known. Line only
	Plan   *result.Plan
	Levels int    // 0: not known
	Title  string // of the screen: what is measured
	// Interrupt is called when the user ends the run with a key of the screen,
	// where Ctrl-C makes no signal.
	Interrupt func()
}

// A View shows a run: Start, then Observe and Hold, then Close.
type View struct {
	options Options
	screen  *screen // nil: there is none

	mu    sync.Mutex // protects the fields below
	state state
	drawn time.Time // when the line was last drawn
	shown bool      // the line is there
	held  []held    // while the screen is up
	up    bool      // the screen is
}

// held is something that was written while the screen was up.
type held struct {
	to   io.Writer
	data []byte
}

// Start begins to show; Close ends it. When ctx ends the screen goes away by
// itself.
func Start(ctx context.Context, o Options) *View {
	v := &View{options: o, state: state{plan: o.Plan, levels: o.Levels}}
	if o.Mode == Full {
		v.up = true
		v.screen = startScreen(ctx, v)
	}
	return v
}

// Close removes the display and writes what was held. It may be called again.
func (v *View) Close() {
	if v.screen != nil {
		v.screen.close()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clearLocked()
}

// down is called when the screen is gone.
func (v *View) down() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.up = false
	for _, h := range v.held {
		_, _ = h.to.Write(h.data) // there is no one to report an error to
	}
	v.held = nil
}

const clearLine = "\r\x1b[K"

func (v *View) clearLocked() {
	if v.shown {
		fmt.Fprint(v.options.Out, clearLine)
		v.shown = false
	}
}

// Hold returns a writer to w that does not disturb the display: it removes the
// line first, and keeps what is written until the screen is gone. The bytes
// that reach w are the same as without the view.
func (v *View) Hold(w io.Writer) io.Writer { return &holder{v, w} }

type holder struct {
	view *View
	to   io.Writer
}

func (h *holder) Write(data []byte) (int, error) {
	v := h.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.up {
		v.held = append(v.held, held{h.to, append([]byte(nil), data...)})
		return len(data), nil
	}
	v.clearLocked()
	return h.to.Write(data)
}

// Observe returns an observer that shows the run and forwards everything to o.
func (v *View) Observe(o result.Observer) result.Observer {
	if v.options.Mode == Off {
		return o
	}
	return &observer{v, o}
}

type observer struct {
	view *View
	next result.Observer
}

// Begin implements result.Observer.
func (o *observer) Begin(l result.Load) {
	o.view.mu.Lock()
	o.view.state.begin(l)
	o.view.mu.Unlock()
	o.next.Begin(l)
}

// Progress implements result.Observer.
func (o *observer) Progress(p result.Progress) {
	o.next.Progress(p)
	v := o.view
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state.progress(p)
	if v.options.Mode != Line {
		return
	}
	if now := time.Now(); now.Sub(v.drawn) >= lineFrame-10*time.Millisecond {
		v.drawn = now
		v.drawLocked()
	}
}

func (v *View) drawLocked() {
	width := 0
	if v.options.Width != nil {
		width = v.options.Width()
	}
	// One column less: a cursor after the last column would begin a new line.
	fmt.Fprint(v.options.Out, clearLine+v.state.line(max(0, width-1)))
	v.shown = true
}

// Window implements result.Observer.
func (o *observer) Window(trial int, w *result.Window) {
	v := o.view
	v.mu.Lock()
	v.state.window(w)
	if v.options.Mode == Plain {
		fmt.Fprintln(v.options.Out, v.state.plain(trial, w))
	}
	v.mu.Unlock()
	o.next.Window(trial, w)
}

// End implements result.Observer.
func (o *observer) End(l *result.Level) {
	o.view.mu.Lock()
	o.view.state.end(l)
	o.view.mu.Unlock()
	o.next.End(l)
}

// plain returns a window that has ended as a line for a file.
func (s *state) plain(trial int, w *result.Window) string {
	s.trial = trial
	pieces := []piece{
		{text: loadName(s.load)},
		{text: s.windowName()},
		{text: count(w.RequestRate()) + "/s"},
		{text: fmt.Sprintf("p50 %s p99 %s", span(w.Latency.Quantile(0.5)), span(w.Latency.Quantile(0.99)))},
		{text: s.batchName()},
		{text: s.spreadName()},
		{text: s.failedName()},
		{text: s.levelName(0)},
	}
	return joined(pieces)
}
