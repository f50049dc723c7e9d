package perf

import (
	"math"
	"time"

	"shoal/internal/load"
)

// A Progress is where a run is, ten times a second.
type Progress struct {
	Load     Load
	Trial    int             // the window now measured, from 1
	Elapsed  time.Duration   // of the window
	Window   *Window         // so far; not to be kept
	Tick     Tick            // the last tenth of a second
	Latency  *load.Histogram // of the last tenth of a second; not to be kept
	InFlight int             // requests under way
}

func (m *meter) progress(w *Window) {
	if m.observe == nil {
		return
	}
	m.observe(Progress{
		Load: m.load, Trial: m.trial, Elapsed: load.Now() - m.last.at, Window: w,
		Tick: m.timeline[len(m.timeline)-1], Latency: m.tick, InFlight: m.crew.inFlight(),
	})
}

// inFlight returns how many requests are under way. Each worker of a closed loop
// has one.
func (c *crew) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running > 0 {
		return c.busy
	}
	return len(c.workers)
}

// Count returns how many levels a range has; 0 when that is not known beforehand.
func (r Range) Count() int {
	switch {
	case r.Single:
		return 1
	case r.Unbounded() || !(r.Step > 0):
		return 0
	}
	return int(math.Floor((r.End*(1+1e-9)-r.Start)/r.Step)) + 1
}

// Levels returns how many levels a run will have; 0 when that is not known
// beforehand.
func (s *Settings) Levels() int {
	if s.Plan.BinarySearch || len(s.Capacity) > 0 {
		return 0
	}
	return s.Range.Count()
}

// SpreadOf returns how far the windows of a level that count are from each other.
func (p *Plan) SpreadOf(windows []Window) Spread { return judge(p, windows).spread }

// Counts says whether the i-th window of a level is one of those that count.
func (l *Level) Counts(i int) bool { return i >= len(l.Windows)-len(counted(l.Windows)) }
