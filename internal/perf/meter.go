package perf

import (
	"context"
	"fmt"
	"os"
	"time"

	"shoal/internal/load"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

const (
	// tickLength is how often what the workers saw is collected.
	tickLength = 100 * time.Millisecond
	// tendEvery is after how many ticks an idle connection is looked after, each in
	// its turn: a second is soon enough for a server that wants to stop.
	tendEvery = 10
	// lateAfter is how late a request is sent when it counts as delayed.
	lateAfter = time.Millisecond
	// minCountWindow is the shortest window that is counted by requests; a few
	// milliseconds would never agree with each other.
	minCountWindow = time.Second
	// statisticsTimeout is how long a server may take for its statistics, which
	// cost it next to nothing.
	statisticsTimeout = 10 * time.Second
)

// A meter turns what a crew sees into windows, one after the other without a gap.
type meter struct {
	session *Session
	crew    *crew
	load    Load
	observe func(Progress)

	origin time.Duration // of the level
	last   edge          // where the window now measured began
	cut    time.Duration // where the slice now measured began
	trial  int

	ticks    int
	timeline []Tick
	tick     *load.Histogram // of the tick now measured
	exported []exported
	health   health
}

// An edge is what is read at the moment between two windows.
type edge struct {
	at                   time.Duration
	clientCPU, serverCPU time.Duration
	stats                []*pb.ModelStatistics
}

func newMeter(ctx context.Context, s *Session, c *crew, l Load, observe func(Progress)) (*meter, error) {
	m := &meter{session: s, crew: c, load: l, observe: observe, tick: &load.Histogram{}, health: health{limit: s.settings.Plan.MaxErrors}}
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
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	return e, err
}

// window measures until the window is over: after its time, with enough answers,
// when the crew has done its work, or when ctx ends. It returns false when the
// level should end, because no more will come.
func (m *meter) window(ctx context.Context) (Window, bool, error) {
	m.trial++
	w := Window{Start: load.At(m.last.at), Latency: &load.Histogram{}}
	if m.load.Open() {
		w.FromSend, w.SendLag = &load.Histogram{}, &load.Histogram{}
		if m.session.settings.Plan.LatencyClock == SendClock {
			w.FromSchedule = &load.Histogram{}
		}
	}
	clamp := m.collect(ctx, &w)
	going := ctx.Err() == nil && m.health.why == ""
	select {
	case <-m.crew.done:
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
	w.MaxInFlight, _ = m.crew.crowd()
	if err == nil && m.session.statistics {
		w.Server = diffStats(m.last.stats, now.stats)
	}
	if m.session.gpu != nil {
		w.GPU = m.session.gpu.take()
	}
	m.last = now
	return w, going, err
}

// collect takes what the workers saw, tick by tick, until the window is over.
func (m *meter) collect(ctx context.Context, w *Window) *clamp {
	p := &m.session.settings.Plan
	length := p.Window + p.Window/5 // as perf_analyzer's windows
	if p.Mode != TimeWindows {
		length = minCountWindow
	}
	ticker := time.NewTicker(tickLength)
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
			if p.Mode == TimeWindows {
				return clamp
			}
			enough = true
		case <-m.crew.done:
			clamp.take(m, w)
			return clamp
		case <-ctx.Done():
			return clamp
		}
		if m.health.why != "" || p.Mode == CountWindows && enough && w.Requests >= p.WindowCount {
			return clamp
		}
	}
}

// A clamp remembers when the first request of a window was sent and the last
// answer came.
type clamp struct {
	any         bool
	first, last time.Duration
}

// take moves what the workers have seen into the window.
func (c *clamp) take(m *meter, w *Window) {
	m.tick.Reset()
	now := load.Now()
	before, failedBefore, rowsBefore := w.Requests, w.Failed, w.Rows
	m.ticks++
	for i, worker := range m.crew.workers {
		records, idle, failed, export := worker.take()
		for i := range records {
			c.add(&records[i])
			m.count(w, &records[i])
		}
		w.Idle += idle
		for _, f := range failed {
			w.Failed++
			w.countError(f.cause, 1)
			m.health.fail(f)
		}
		m.exported = append(m.exported, export...)
		if i%tendEvery == m.ticks%tendEvery {
			worker.conn.Tend()
		}
	}
	m.health.tick(now, w.Requests-before)
	w.cut(now-m.cut, w.Requests-before, w.Rows-rowsBefore, m.tick)
	m.cut = now
	m.timeline = append(m.timeline, Tick{
		At: now - m.origin, Requests: w.Requests - before, Failed: w.Failed - failedBefore,
		P50: m.tick.Quantile(0.5), P99: m.tick.Quantile(0.99), Max: m.tick.Max(),
	})
}

func (c *clamp) add(r *record) {
	if !c.any || r.start < c.first {
		c.first = r.start
	}
	if !c.any || r.done > c.last {
		c.last = r.done
	}
	c.any = true
}

// count adds one answered request.
func (m *meter) count(w *Window, r *record) {
	w.Requests++
	w.Rows += m.session.rowsOf(r.message)
	w.Responses += int64(r.responses)
	if r.ended {
		w.Sequences++
	}
	latency := r.done - r.start
	if m.load.Open() {
		w.FromSend.Record(latency)
		lag := r.start - r.due
		w.SendLag.Record(lag)
		if lag > lateAfter {
			w.Delayed++
		}
		if w.FromSchedule != nil {
			w.FromSchedule.Record(r.done - r.due)
		} else {
			latency = r.done - r.due
		}
	}
	w.Latency.Record(latency)
	m.tick.Record(latency)
	sent, first := r.sent, r.first
	if sent == 0 {
		sent = r.start
	}
	if first == 0 {
		first = r.done
	}
	w.Send += sent - r.start
	w.Wait += max(0, first-sent)
	w.Receive += r.done - first
}
