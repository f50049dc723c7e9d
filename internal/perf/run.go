package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"shoal/internal/load"
)

// ErrNoAnswers ends a run in which a window had no answer at all.
var ErrNoAnswers = errors.New("no valid requests recorded within time interval. Please use a larger time window")

// An Observer is told how a run goes. Its methods are called one at a time; they
// should return soon.
type Observer interface {
	// Begin is called before a level is measured.
	Begin(l Load)
	// Progress is called ten times a second.
	Progress(p Progress)
	// Window is called when a window of a level has ended.
	Window(trial int, w *Window)
	// End is called when a level has ended.
	End(l *Level)
}

// Run measures all levels. When ctx ends, the window then measured ends too and
// the result has what was measured until then. The result is never nil; the error
// says why the run could not go on.
func (s *Session) Run(ctx context.Context, o Observer) (*Result, error) {
	r := &Result{
		Format: resultFormat, Tool: s.settings.Tool, Command: s.settings.Command, Started: time.Now(),
		Host: thisHost(), Target: s.target, Plan: s.settings.Plan, Levels: []Level{}, Warnings: s.data.Notes,
	}
	var err error
	if s.settings.MetricsURL != "" {
		s.gpu = startGPU(s.settings.MetricsURL, s.settings.MetricsInterval)
		defer s.gpu.close()
	}
	if len(s.settings.Capacity) > 0 {
		err = s.findCapacity(ctx, r, o)
	} else {
		err = s.levels(ctx, r, o)
	}
	if ctx.Err() != nil { // whatever failed, failed because of it
		r.Cut, err = "interrupted", nil
	}
	if err != nil {
		r.Cut = err.Error()
	}
	if s.gpu != nil {
		r.Warnings = append(r.Warnings, s.gpu.warnings()...)
	}
	r.Ended = time.Now()
	return r, err
}

// levels measures the levels of the range, one after the other.
func (s *Session) levels(ctx context.Context, r *Result, o Observer) error {
	find := search{levels: s.settings.Range, binary: s.settings.Plan.BinarySearch}
	passed := true
	for {
		value, more := find.next(passed)
		if !more {
			return nil
		}
		l := Level{Load: Load{Mode: s.settings.Mode, Value: value, Distribution: s.settings.Distribution}}
		o.Begin(l.Load)
		err := s.level(ctx, &l, o)
		r.Levels = append(r.Levels, l)
		o.End(&r.Levels[len(r.Levels)-1])
		passed = !l.OverLimit
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

func thisHost() Host {
	return Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.GOMAXPROCS(0)}
}

// cutShort is the reason of a level that was ended before it was stable.
const cutShort = "cut short"

const (
	// patience is how long a level's last requests may take once no more are
	// sent; a slow model gets more.
	patience = 15 * time.Second
	// cutPatience is the same for a run that is being ended.
	cutPatience = 3 * time.Second
	// connectAhead and connectFor say how many connections of an open loop are
	// made before it starts: some, and as many as requests are due in a moment
	// in which the machine does something else. Catching up over new connections
	// would make it later still.
	connectAhead = 8
	connectFor   = 20 * time.Millisecond
)

// level measures one load until it is stable, over the limit, or out of trials.
func (s *Session) level(ctx context.Context, l *Level, o Observer) error {
	p := &s.settings.Plan
	conns, err := s.connect(ctx, l.Load)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	if p.Warmup > 0 {
		if err := s.warmUp(ctx, l.Load, conns); err != nil {
			return err
		}
	}
	c := newCrew(conns, s.messages, p.RequestCount, s.settings.Export)
	c.order = s.order
	m, err := newMeter(ctx, s, c, l.Load, o.Progress)
	if err != nil {
		return fmt.Errorf("failed to get statistics: %w", err)
	}
	if err := s.start(ctx, c, l.Load); err != nil {
		return err
	}
	err = s.measure(ctx, l, m, o)
	c.stop()
	wait := s.waitFor(ctx, l)
	if err != nil {
		wait = cutPatience
	}
	if !c.wait(wait) && err == nil && ctx.Err() == nil {
		l.Warnings = append(l.Warnings, "the server did not answer the last requests; their connections were closed")
	}
	l.Timeline = m.timeline
	s.finish(l, m)
	return err
}

// connect makes the connections of a level, and those that will surely be used
// connect.
func (s *Session) connect(ctx context.Context, l Load) ([]load.Conn, error) {
	n, ahead := int(l.Value), int(l.Value)
	if l.Open() {
		n = s.settings.Plan.MaxOutstanding
		ahead = min(n, max(connectAhead, int(l.Value*connectFor.Seconds())))
	}
	conns, err := s.link.Conns(n)
	if err != nil {
		return nil, err
	}
	for _, c := range conns[:ahead] {
		if err := c.Connect(ctx); err != nil {
			closeAll(conns)
			return nil, fmt.Errorf("%w after %s", err, s.target.URL)
		}
	}
	return conns, nil
}

func closeAll(conns []load.Conn) {
	for _, c := range conns {
		_ = c.Close() // nothing is under way
	}
}

func (s *Session) start(ctx context.Context, c *crew, l Load) error {
	// What is under way when the run is cut may still be answered.
	ctx = context.WithoutCancel(ctx)
	c.sequences = s.sequences
	if s.expected != nil {
		c.expect(s.checkAnswer)
	}
	if l.Mode == Periodic {
		c.startPeriodic(ctx, s.settings.Periodic)
		return nil
	}
	if !l.Open() {
		c.startClosed(ctx)
		return nil
	}
	a, err := s.newAlarm()
	if err != nil {
		return err
	}
	c.startOpen(ctx, newSchedule(l, s.settings.Intervals, s.settings.Seed), a)
	return nil
}

// warmUp makes the same load for a number of requests and forgets it.
func (s *Session) warmUp(ctx context.Context, l Load, conns []load.Conn) error {
	c := newCrew(conns, s.messages, s.settings.Plan.Warmup, false)
	if err := s.start(ctx, c, l); err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.stop()
		c.wait(cutPatience)
	}
	for _, w := range c.workers {
		if _, _, failed, _ := w.take(); len(failed) > 0 {
			return fmt.Errorf("a request of the warm-up failed: %s", failed[0].cause)
		}
	}
	return nil
}

// measure takes windows until the level is decided.
func (s *Session) measure(ctx context.Context, l *Level, m *meter, o Observer) error {
	p := &s.settings.Plan
	for trial := 1; ; trial++ {
		w, going, err := m.window(ctx)
		if err == nil {
			w.WarmUp = s.warming(l, trial, &w)
		}
		l.Windows = append(l.Windows, w) // what was measured until a server died counts too
		o.Window(trial, &w)
		if err != nil || m.health.why != "" {
			l.Reason = cutShort
		}
		if m.health.why != "" {
			return errors.New(m.health.why)
		}
		if err != nil {
			return fmt.Errorf("failed to get statistics: %w", err)
		}
		if w.Requests == 0 && ctx.Err() == nil {
			if w.Failed > 0 {
				return fmt.Errorf("all %d requests of a window failed: %s", w.Failed, m.health.cause)
			}
			return ErrNoAnswers
		}
		v := judge(p, l.Windows)
		if p.RequestCount > 0 {
			if l.Stable = !going && ctx.Err() == nil; ctx.Err() != nil {
				l.Reason = cutShort
			}
			return nil
		}
		l.Stable, l.Reason, l.OverLimit = v.stable, v.reason, v.over
		if ctx.Err() != nil && !v.stable {
			l.Reason = cutShort
		}
		if v.stable || v.over || !going || trial >= p.MaxTrials {
			s.relief(l, v)
			return nil
		}
	}
}

// relief lets an asynchronous run pass when only its latency is not stable.
func (s *Session) relief(l *Level, v verdict) {
	if s.settings.Plan.Async && v.throughput && !v.stable && !v.over {
		l.Stable, l.Reason = true, ""
		l.Warnings = append(l.Warnings, "Request latency is not stabilizing: its spread is "+percent(v.spread.Latency)+"; fewer concurrent requests may help.")
	}
}

// finish adds up what counts.
func (s *Session) finish(l *Level, m *meter) {
	windows := l.Windows
	if n := len(windows); n > 1 && windows[n-1].Requests == 0 {
		windows = windows[:n-1] // a window that was cut before its first answer
	}
	l.Merged = merge(counted(windows))
	l.Goals = checkGoals(s.settings.Goals, l.Merged)
	l.Figures = figuresOf(&s.settings.Plan, l.Merged)
	l.forgetSlices()
	l.Spread = judge(&s.settings.Plan, windows).spread
	if s.settings.Export {
		s.keep(l, m.exported)
	}
	l.Warnings = append(l.Warnings, warnings(&s.settings.Plan, l, runtime.GOMAXPROCS(0))...)
}

// waitFor returns how long the last requests of a level may take.
func (s *Session) waitFor(ctx context.Context, l *Level) time.Duration {
	if ctx.Err() != nil {
		return cutPatience
	}
	d := patience
	for i := range l.Windows {
		d = max(d, 3*l.Windows[i].Latency.Max())
	}
	return d
}
