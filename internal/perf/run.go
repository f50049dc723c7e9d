package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
)

// ErrNoAnswers ends a run in which a window had no answer at all.
var ErrNoAnswers = errors.New("no valid requests recorded within time interval. Please use a larger time window")

// Run measures all levels. When ctx ends, the current window ends too and the
// result has what was measured until then. The result is never nil; the error
// says why the run could not go on.
func (s *Session) Run(ctx context.Context, o result.Observer) (*result.Result, error) {
	r := &result.Result{
		Format: result.Format, Tool: s.settings.Tool, Command: s.settings.Command, Started: time.Now(),
		Host: ThisHost(), Target: s.target, Plan: s.settings.Plan, Levels: []result.Level{}, Warnings: s.data.Notes,
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
	if ctx.Err() != nil { // every failure follows from that
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
func (s *Session) levels(ctx context.Context, r *result.Result, o result.Observer) error {
	find := search{levels: s.settings.Range, binary: s.settings.Plan.BinarySearch}
	passed := true
	for {
		value, more := find.next(passed)
		if !more {
			return nil
		}
		l := result.Level{Load: result.Load{Mode: s.settings.Mode, Value: value, Distribution: s.settings.Distribution}}
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

// ThisHost returns the machine that this process runs on.
func ThisHost() result.Host {
	return result.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.GOMAXPROCS(0)}
}

const (
	// patience is how long a level's last requests may take once no more are
	// sent; a slow model gets more.
	patience = 15 * time.Second
	// cutPatience is the same for a run that is being ended.
	cutPatience = 3 * time.Second
	// connectAhead and connectFor say how many connections of an open loop are
	// made before it starts: some, plus as many as requests are due while the
	// machine may be busy elsewhere. Catching up over new connections would
	// take even longer.
	connectAhead = 8
	connectFor   = 20 * time.Millisecond
)

// level measures one load until it is stable, over the limit, or out of trials.
func (s *Session) level(ctx context.Context, l *result.Level, o result.Observer) error {
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
	g := drive.New(conns, drive.Options{
		Messages: s.messages, Order: s.order, Limit: p.RequestCount, Keep: s.settings.Export, Check: s.check(), Sequences: s.sequences,
	})
	m, err := newMeter(ctx, s, g, l.Load, o.Progress)
	if err != nil {
		return fmt.Errorf("failed to get statistics: %w", err)
	}
	if err := s.start(ctx, g, l.Load); err != nil {
		return err
	}
	err = s.measure(ctx, l, m, o)
	g.Stop()
	wait := s.waitFor(ctx, l)
	if err != nil {
		wait = cutPatience
	}
	if !g.Wait(wait) && err == nil && ctx.Err() == nil {
		l.Warnings = append(l.Warnings, "the server did not answer the last requests; their connections were closed")
	}
	l.Timeline = m.timeline
	s.finish(l, m)
	return err
}

// connect makes the connections of a level, and connects those that will
// certainly be used.
func (s *Session) connect(ctx context.Context, l result.Load) ([]load.Conn, error) {
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
		_ = c.Close() // nothing is in flight
	}
}

// check returns a function that checks each answer; nil when any answer is
// good.
func (s *Session) check() func(message int, answer []byte) error {
	if s.expected == nil {
		return nil
	}
	return s.checkAnswer
}

func (s *Session) start(ctx context.Context, g *drive.Generator, l result.Load) error {
	// Requests in flight when the run is cut may still be answered.
	ctx = context.WithoutCancel(ctx)
	if l.Mode == result.Periodic {
		g.StartPeriodic(ctx, s.settings.Periodic)
		return nil
	}
	if !l.Open() {
		g.StartClosed(ctx)
		return nil
	}
	a, err := s.newAlarm()
	if err != nil {
		return err
	}
	g.StartOpen(ctx, drive.NewSchedule(l, s.settings.Intervals, s.settings.Seed), a)
	return nil
}

// warmUp sends the same load for a number of requests and discards the results.
func (s *Session) warmUp(ctx context.Context, l result.Load, conns []load.Conn) error {
	g := drive.New(conns, drive.Options{Messages: s.messages, Limit: s.settings.Plan.Warmup, Check: s.check(), Sequences: s.sequences})
	if err := s.start(ctx, g, l); err != nil {
		return err
	}
	select {
	case <-g.Done():
	case <-ctx.Done():
		g.Stop()
		g.Wait(cutPatience)
	}
	for _, c := range g.Callers {
		if failed := c.Take().Failures; len(failed) > 0 {
			return fmt.Errorf("a request of the warm-up failed: %s", failed[0].Cause)
		}
	}
	return nil
}

// measure takes windows until the level is decided.
func (s *Session) measure(ctx context.Context, l *result.Level, m *meter, o result.Observer) error {
	p := &s.settings.Plan
	for trial := 1; ; trial++ {
		w, going, err := m.window(ctx)
		if err == nil {
			w.WarmUp = judge.WarmUp(p, l.Windows, &w)
		}
		l.Windows = append(l.Windows, w) // windows before a server died count too
		o.Window(trial, &w)
		if err != nil || m.health.Why != "" {
			l.Reason = result.CutShort
		}
		if m.health.Why != "" {
			return errors.New(m.health.Why)
		}
		if err != nil {
			return fmt.Errorf("failed to get statistics: %w", err)
		}
		if w.Requests == 0 && ctx.Err() == nil {
			if w.Failed > 0 {
				return fmt.Errorf("all %d requests of a window failed: %s", w.Failed, m.health.Cause)
			}
			return ErrNoAnswers
		}
		v := judge.Windows(p, l.Windows)
		if p.RequestCount > 0 {
			if l.Stable = !going && ctx.Err() == nil; ctx.Err() != nil {
				l.Reason = result.CutShort
			}
			return nil
		}
		l.Stable, l.Reason, l.OverLimit = v.Stable, v.Reason, v.Over
		if ctx.Err() != nil && !v.Stable {
			l.Reason = result.CutShort
		}
		if v.Stable || v.Over || !going || trial >= p.MaxTrials {
			s.relief(l, v)
			return nil
		}
	}
}

// relief accepts an asynchronous run of which only the latency is not stable.
func (s *Session) relief(l *result.Level, v judge.Verdict) {
	if s.settings.Plan.Async && v.Throughput && !v.Stable && !v.Over {
		l.Stable, l.Reason = true, ""
		l.Warnings = append(l.Warnings, "Request latency is not stabilizing: its spread is "+result.Percent(v.Spread.Latency)+"; fewer concurrent requests may help.")
	}
}

// finish adds up the windows that count.
func (s *Session) finish(l *result.Level, m *meter) {
	windows := l.Windows
	if n := len(windows); n > 1 && windows[n-1].Requests == 0 {
		windows = windows[:n-1] // a window that was cut before its first answer
	}
	l.Merged = result.Merge(result.LastWindows(windows))
	l.Goals = judge.CheckGoals(s.settings.Goals, l.Merged)
	l.Figures = judge.Figures(&s.settings.Plan, l.Merged)
	l.ForgetSlices()
	l.Spread = s.settings.Plan.SpreadOf(windows)
	if s.settings.Export {
		s.keep(l, m.kept)
	}
	l.Warnings = append(l.Warnings, judge.Warnings(&s.settings.Plan, l, runtime.GOMAXPROCS(0))...)
}

// waitFor returns how long the last requests of a level may take.
func (s *Session) waitFor(ctx context.Context, l *result.Level) time.Duration {
	if ctx.Err() != nil {
		return cutPatience
	}
	d := patience
	for i := range l.Windows {
		d = max(d, 3*l.Windows[i].Latency.Max())
	}
	return d
}

// keep stores a level's requests for the export.
func (s *Session) keep(l *result.Level, exchanges []result.Exchange) {
	e := result.ExportedLevel{Load: l.Load, Exchanges: exchanges}
	for i := range l.Windows {
		w := &l.Windows[i]
		if i == 0 {
			e.Boundaries = append(e.Boundaries, w.Start)
		}
		e.Boundaries = append(e.Boundaries, w.Start.Add(w.Duration))
	}
	s.exported = append(s.exported, e)
}

// Exported returns every request of a run with Settings.Export.
func (s *Session) Exported() *result.Export {
	return &result.Export{Protocol: s.target.Protocol, Requests: s.requests, Levels: s.exported}
}
