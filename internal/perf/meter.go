package perf

import (
	"context"
	"fmt"
	"os"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

const (
	// pollEvery is after how many ticks each idle connection is polled: once a
	// second is often enough for a server that wants to stop.
	pollEvery = 10
	// lateAfter is how late a request must be sent to count as delayed.
	lateAfter = time.Millisecond
	// minCountWindow is the shortest window that is counted by requests;
	// windows of a few milliseconds would never agree.
	minCountWindow = time.Second
	// statisticsTimeout is how long a server may take for its statistics, which
	// cost it next to nothing.
	statisticsTimeout = 10 * time.Second
)

// A meter turns the callers' records into consecutive windows.
type meter struct {
	session *Session
	drive   *drive.Generator
	load    result.Load
	observe func(result.Progress)

	origin time.Duration // of the level
	last   edge          // where the window now measured began
	cut    time.Duration // where the slice now measured began
	trial  int

	ticks    int
	timeline []result.Tick
	tick     *load.Histogram // of the tick now measured
	kept     []result.Exchange
	health   judge.Health
}

// An edge is what is read at the moment between two windows.
type edge struct {
	at                   time.Duration
	clientCPU, serverCPU time.Duration
	stats                []*pb.ModelStatistics
	parts                [][]*pb.ModelStatistics // of the session's parts
}

func newMeter(ctx context.Context, s *Session, g *drive.Generator, l result.Load, observe func(result.Progress)) (*meter, error) {
	m := &meter{session: s, drive: g, load: l, observe: observe, tick: &load.Histogram{}, health: judge.Health{Limit: s.settings.Plan.MaxErrors}}
	var err error
	m.last, err = m.edge(ctx)
	m.origin, m.cut = m.last.at, m.last.at
	return m, err
}

func (m *meter) edge(ctx context.Context) (edge, error) {
	e := edge{at: load.Now()}
	e.clientCPU, _ = load.Watch(os.Getpid()).CPU() // zero where the system does not say
	e.serverCPU = load.CPU(m.session.processes())
	var err error
	if m.session.statistics {
		ctx, cancel := context.WithTimeoutCause(ctx, statisticsTimeout, fmt.Errorf("the server did not answer within %v", statisticsTimeout))
		defer cancel()
		e.stats, err = m.session.api.Statistics(ctx, m.session.target.Model, m.session.target.Version)
		for _, p := range m.session.parts {
			if err != nil {
				break
			}
			var stats []*pb.ModelStatistics
			stats, err = m.session.api.Statistics(ctx, p.Model, p.Version)
			e.parts = append(e.parts, stats)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	return e, err
}

// window measures until the window is over: after its time, with enough
// answers, when the generator has finished, or when ctx ends. It returns false
// when the level should end because no more answers will come.
func (m *meter) window(ctx context.Context) (result.Window, bool, error) {
	m.trial++
	w := result.Window{Start: load.At(m.last.at), Latency: &load.Histogram{}}
	if m.load.Open() {
		w.FromSend, w.SendLag = &load.Histogram{}, &load.Histogram{}
		if m.session.settings.Plan.LatencyClock == result.SendClock {
			w.FromSchedule = &load.Histogram{}
		}
	}
	clamp := m.collect(ctx, &w)
	going := ctx.Err() == nil && m.health.Why == ""
	select {
	case <-m.drive.Done():
		going = false
	default:
	}
	// What was measured is reported even when the run is being ended.
	now, err := m.edge(context.WithoutCancel(ctx))
	clamp.take(m, &w)
	w.Duration = now.at - m.last.at
	if m.session.settings.Plan.RequestCount > 0 && clamp.any {
		w.Start, w.Duration = load.At(clamp.first), clamp.last-clamp.first
	}
	w.ClientCPU, w.ServerCPU = now.clientCPU-m.last.clientCPU, max(0, now.serverCPU-m.last.serverCPU)
	w.MaxInFlight = m.drive.Peak()
	if err == nil && m.session.statistics {
		w.Server = diffStats(m.last.stats, now.stats)
		for i, p := range m.session.parts {
			if d := diffStats(m.last.parts[i], now.parts[i]); d != nil {
				w.Parts = append(w.Parts, result.PartStats{Model: p.Model, ServerStats: *d})
			}
		}
	}
	if m.session.gpu != nil {
		w.GPU = m.session.gpu.take()
	}
	m.last = now
	return w, going, err
}

// collect takes the callers' records, tick by tick, until the window is over.
func (m *meter) collect(ctx context.Context, w *result.Window) *clamp {
	p := &m.session.settings.Plan
	length := p.Window + p.Window/5 // as perf_analyzer's windows
	if p.Mode != result.TimeWindows {
		length = minCountWindow
	}
	ticker := time.NewTicker(result.TickLength)
	defer ticker.Stop()
	end := time.NewTimer(max(0, m.last.at+length-load.Now()))
	defer end.Stop()
	clamp := &clamp{}
	enough := false
	for {
		select {
		case <-ticker.C:
			clamp.take(m, w)
			m.progress(w)
		case <-end.C:
			if p.Mode == result.TimeWindows {
				return clamp
			}
			enough = true
		case <-m.drive.Done():
			clamp.take(m, w)
			return clamp
		case <-ctx.Done():
			return clamp
		}
		if m.health.Why != "" || p.Mode == result.CountWindows && enough && w.Requests >= p.WindowCount {
			return clamp
		}
	}
}

// A clamp has the times of a window's first request and last answer.
type clamp struct {
	any         bool
	first, last time.Duration
}

// take moves the callers' records into the window.
func (c *clamp) take(m *meter, w *result.Window) {
	m.tick.Reset()
	now := load.Now()
	before, failedBefore, rowsBefore := w.Requests, w.Failed, w.Rows
	m.ticks++
	for i, caller := range m.drive.Callers {
		seen := caller.Take()
		for i := range seen.Records {
			c.add(&seen.Records[i])
			m.count(w, &seen.Records[i])
		}
		w.Idle += seen.Idle
		for _, f := range seen.Failures {
			w.Failed++
			w.CountError(f.Cause, 1)
			m.health.Fail(f.Cause, f.Fault, f.Fatal)
		}
		m.kept = append(m.kept, seen.Kept...)
		if i%pollEvery == m.ticks%pollEvery {
			caller.PollIdle()
		}
	}
	m.health.Tick(now, w.Requests-before)
	w.Cut(now-m.cut, w.Requests-before, w.Rows-rowsBefore, m.tick)
	m.cut = now
	m.timeline = append(m.timeline, result.Tick{
		At: now - m.origin, Requests: w.Requests - before, Failed: w.Failed - failedBefore,
		P50: m.tick.Quantile(0.5), P99: m.tick.Quantile(0.99), Max: m.tick.Max(),
	})
}

func (c *clamp) add(r *drive.Record) {
	if !c.any || r.Start < c.first {
		c.first = r.Start
	}
	if !c.any || r.Done > c.last {
		c.last = r.Done
	}
	c.any = true
}

// count adds one answered request.
func (m *meter) count(w *result.Window, r *drive.Record) {
	w.Requests++
	w.Rows += m.session.rowsOf(r.Message)
	w.Responses += int64(r.Responses)
	if r.Ended {
		w.Sequences++
	}
	latency := r.Done - r.Start
	if m.load.Open() {
		w.FromSend.Record(latency)
		lag := r.Start - r.Due
		w.SendLag.Record(lag)
		if lag > lateAfter {
			w.Delayed++
		}
		if w.FromSchedule != nil {
			w.FromSchedule.Record(r.Done - r.Due)
		} else {
			latency = r.Done - r.Due
		}
	}
	w.Latency.Record(latency)
	m.tick.Record(latency)
	sent, first := r.Sent, r.First
	if sent == 0 {
		sent = r.Start
	}
	if first == 0 {
		first = r.Done
	}
	w.Send += sent - r.Start
	w.Wait += max(0, first-sent)
	w.Receive += r.Done - first
}

func (m *meter) progress(w *result.Window) {
	if m.observe == nil {
		return
	}
	m.observe(result.Progress{
		Load: m.load, Trial: m.trial, Elapsed: load.Now() - m.last.at, Window: w,
		Tick: m.timeline[len(m.timeline)-1], Latency: m.tick, InFlight: m.drive.InFlight(),
	})
}
