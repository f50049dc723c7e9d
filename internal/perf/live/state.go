package live

import (
	"time"

	"shoal/internal/perf/result"
)

// windowsWanted is how many windows of a level must agree: fewer are never enough.
const windowsWanted = 3

// maxColumns bounds the history; no terminal is wider.
const maxColumns = 500

// A state is what is known of a run: plain data that the observer changes.
type state struct {
	plan   *result.Plan
	levels int // 0: not known

	level    int // the one now measured, from 1
	load     result.Load
	trial    int
	elapsed  time.Duration // of the window
	rate     float64       // requests a second of the window so far
	p50, p99 time.Duration // of the window so far
	requests int64         // of the window so far
	inFlight int
	failed   int64 // in the level
	before   int64 // of them before this window
	windows  []result.Window
	server   *result.ServerStats // of the last window
	columns  []column
	last     time.Duration // when the last column of this level ended

	done        []result.Level // ended
	windowsDone int            // of those
}

// A column is a tenth of a second.
type column struct {
	rate   float64
	heat   [heatRows]float64 // share of the requests by latency
	failed bool
	first  bool // of its level
}

func (s *state) begin(l result.Load) {
	s.level++
	s.load, s.trial, s.elapsed = l, 0, 0
	s.rate, s.p50, s.p99, s.requests = 0, 0, 0, 0
	s.failed, s.before, s.inFlight = 0, 0, 0
	s.windows, s.server = nil, nil
	s.last = 0
}

func (s *state) progress(p result.Progress) {
	w := p.Window
	s.trial, s.elapsed, s.inFlight = p.Trial, p.Elapsed, p.InFlight
	if p.Elapsed > 0 {
		s.rate = float64(w.Requests) / p.Elapsed.Seconds()
	}
	s.requests = w.Requests
	s.p50, s.p99 = w.Latency.Quantile(0.5), w.Latency.Quantile(0.99)
	s.failed = s.before + w.Failed
	s.addColumn(p)
}

// addColumn adds the last tenth of a second. A shorter one, at the edge of a
// window, would look like a spike.
func (s *state) addColumn(p result.Progress) {
	length := p.Tick.At - s.last
	if length < 50*time.Millisecond {
		return
	}
	c := column{rate: float64(p.Tick.Requests) / length.Seconds(), failed: p.Tick.Failed > 0, first: s.last == 0}
	s.last = p.Tick.At
	if p.Latency != nil && p.Latency.Count() > 0 {
		n := float64(p.Latency.Count())
		for b := range p.Latency.Buckets() {
			c.heat[heatRow(b.From)] += float64(b.Count) / n
		}
	}
	if len(s.columns) >= maxColumns {
		s.columns = append(s.columns[:0], s.columns[len(s.columns)-maxColumns+1:]...)
	}
	s.columns = append(s.columns, c)
}

func (s *state) window(w *result.Window) {
	s.windows = append(s.windows, *w)
	s.before += w.Failed
	s.failed = s.before
	if w.Server != nil {
		s.server = w.Server
	}
}

func (s *state) end(l *result.Level) {
	s.done = append(s.done, result.Level{Load: l.Load, Stable: l.Stable, Reason: l.Reason, OverLimit: l.OverLimit, Merged: l.Merged})
	s.windowsDone += len(l.Windows)
	s.windows = nil
}

// spread returns the larger of the two spreads of the windows so far, and false
// while there are fewer than two.
func (s *state) spread() (float64, bool) {
	if len(s.windows) < 2 {
		return 0, false
	}
	v := s.plan.SpreadOf(s.windows)
	return max(v.Throughput, v.Latency), true
}

// windowLength returns how long a window will last; 0 when unknown.
func (s *state) windowLength() time.Duration {
	count := s.plan.WindowCount
	switch s.plan.Mode {
	case result.TimeWindows:
		return s.plan.Window + s.plan.Window/5
	case result.RequestCount:
		count = s.plan.RequestCount
	}
	if s.rate <= 0 {
		return 0
	}
	d := time.Duration(float64(count) / s.rate * float64(time.Second))
	if s.plan.Mode == result.CountWindows {
		d = max(d, time.Second)
	}
	return d
}

// wanted returns how many windows a level will need: as many as those before it,
// but no fewer than it must have or has begun.
func (s *state) wanted() float64 {
	if s.plan.Mode == result.RequestCount {
		return 1
	}
	n := float64(min(windowsWanted, s.plan.MaxTrials))
	if len(s.done) > 0 {
		n = max(n, float64(s.windowsDone)/float64(len(s.done)))
	}
	return min(n, float64(s.plan.MaxTrials))
}

// left estimates the time until the level and the run will be done: a level
// whose windows do not agree takes longer. Zero: unknown.
func (s *state) left() (level, run time.Duration) {
	length := s.windowLength()
	if length == 0 || s.trial == 0 {
		return 0, 0
	}
	more := max(s.wanted()-float64(s.trial), 0)
	level = max(length-s.elapsed, 0) + time.Duration(more*float64(length))
	if s.levels == 0 {
		return level, 0
	}
	rest := float64(max(s.levels-s.level, 0)) * s.wanted()
	return level, level + time.Duration(rest*float64(length))
}
