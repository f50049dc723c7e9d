package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf"
	"shoal/internal/perf/live"
	"shoal/internal/perf/result"
)

// One run is shown in some of its slices and not in others, in the order off, on,
// on, off, so that whatever else happens on the machine hits both alike. The first
// ticks after a switch do not count: a view opens once in a run and not every
// second.
const (
	watchTicks = 5 // of a tenth of a second, which count
	guardTicks = 1
	watchTime  = 90 * time.Second
	// oldTicks fill the charts of a view that has just been opened.
	oldTicks = 120

	terminalWidth = 120
)

// A watchSlice is a part of the run with the view on or off.
type watchSlice struct {
	On       bool          `json:"on"`
	Requests int64         `json:"requests"`
	Length   time.Duration `json:"length"`
	CPU      time.Duration `json:"cpu"` // of the client
}

// watchSelf is the process that measures noop with a view on standard error that
// comes and goes. It prints the slices.
func watchSelf(ctx context.Context, address string, mode live.Mode) error {
	settings := perf.Settings{
		Service: perf.Triton, Protocol: result.HTTP, Address: client.Address{Host: address}, Model: "noop",
		Mode: result.Concurrency, Range: perf.Range{Start: 16, End: 16, Step: 1, Single: true},
		Plan: result.Plan{BatchSize: 1, Mode: result.TimeWindows, Window: watchTime * 10 / 12, MaxTrials: 1, Stability: 10, MaxOutstanding: 512, MaxErrors: 0.01},
	}
	session, err := perf.Open(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()                                                   // only questions go over it
	s := &switcher{ctx: ctx, settings: &settings, mode: mode, slices: make([]watchSlice, 1)} // the first is off
	r, err := session.Run(ctx, s)
	s.show(false, result.Progress{})
	if err == nil && r.Cut != "" {
		err = fmt.Errorf("the run was %s", r.Cut)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s.slices)
}

// A switcher observes a run and shows it in some of its slices.
type switcher struct {
	ctx      context.Context
	settings *perf.Settings
	mode     live.Mode
	view     *live.View // nil: off
	observer result.Observer

	ticks  int
	at     time.Duration // where the slice now measured began
	cpu    time.Duration
	slices []watchSlice
}

// Begin implements result.Observer.
func (s *switcher) Begin(result.Load) {}

// Window implements result.Observer.
func (s *switcher) Window(int, *result.Window) {}

// End implements result.Observer.
func (s *switcher) End(*result.Level) {}

// Progress implements result.Observer.
func (s *switcher) Progress(p result.Progress) {
	if s.observer != nil {
		s.observer.Progress(p)
	}
	cpu, _ := load.Watch(os.Getpid()).CPU() // all zero shows in the figures
	if place := s.ticks % (guardTicks + watchTicks); place >= guardTicks {
		slice := &s.slices[len(s.slices)-1]
		slice.Requests += p.Tick.Requests
		slice.Length += p.Tick.At - s.at
		slice.CPU += cpu - s.cpu
	}
	s.at, s.cpu = p.Tick.At, cpu
	s.ticks++
	if n := s.ticks / (guardTicks + watchTicks); s.ticks%(guardTicks+watchTicks) == 0 {
		on := n%4 == 1 || n%4 == 2
		s.show(on, p)
		s.slices = append(s.slices, watchSlice{On: on})
	}
}

// show opens the view or closes it.
func (s *switcher) show(on bool, p result.Progress) {
	switch {
	case on && s.view == nil:
		s.view = live.Start(s.ctx, live.Options{
			Mode: s.mode, Out: os.Stderr, In: os.Stdin, Width: func() int { return terminalWidth }, Plan: &s.settings.Plan, Levels: 1, Title: "noop",
		})
		s.observer = s.view.Observe(nobody{})
		s.observer.Begin(p.Load)
		for range oldTicks {
			s.observer.Progress(p)
		}
	case !on && s.view != nil:
		s.view.Close()
		s.view, s.observer = nil, nil
	}
}

// nobody is an observer that looks at nothing.
type nobody struct{}

func (nobody) Begin(result.Load)          {}
func (nobody) Progress(result.Progress)   {}
func (nobody) Window(int, *result.Window) {}
func (nobody) End(*result.Level)          {}

// watch runs watchSelf on a terminal of its own.
func (b *bench) watch(ctx context.Context, mode live.Mode) ([]watchSlice, error) {
	screen, tty, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer func() { _ = screen.Close() }() // all was read
	cmd, err := self(ctx, "-watch", string(mode), "-at", b.server.HTTP)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stderr = tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = tty.Close()                                    // the command has it now
	go func() { _, _ = io.Copy(io.Discard, screen) }() // ends with the command
	var slices []watchSlice
	err = json.NewDecoder(out).Decode(&slices)
	if waited := cmd.Wait(); waited != nil {
		return nil, waited
	}
	return slices, err
}
