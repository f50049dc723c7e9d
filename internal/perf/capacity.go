package perf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
)

const (
	// probeLength is how long a rate is tried; a low one longer, so that its
	// percentiles mean something.
	probeLength    = 1500 * time.Millisecond
	maxProbeLength = 10 * time.Second
	probeRequests  = 200
	// capacityStep is the ratio between the lowest rate that fails and the
	// highest that passes at which the search ends.
	capacityStep = 1.02
	// confirmWindow is a window of the measurement that confirms the rate found.
	confirmWindow = 1500 * time.Millisecond
	// maxConfirm is how many rates are measured at length at most.
	maxConfirm = 3
	// kept is the share of the rate that must be answered; with less, a queue
	// is growing.
	kept = 0.97
	// maxRate ends the search of a server that answers whatever is sent.
	maxRate = 1e6
)

// ErrNoCapacity ends a search in which no rate met the goal.
var ErrNoCapacity = errors.New("no rate met the goal of --find-capacity")

// A capacitySearch looks for the highest rate of an open loop that meets goals:
// it doubles until one does not, then halves the gap.
type capacitySearch struct {
	session *Session
	goals   []judge.Goal
	found   *result.Capacity
	o       result.Observer
	say     func(result.Probe)
}

// findCapacity searches and measures the rate found at length, as a level.
func (s *Session) findCapacity(ctx context.Context, r *result.Result, o result.Observer) error {
	c := &capacitySearch{session: s, goals: s.settings.Capacity, o: o, found: &result.Capacity{Goal: goalsText(s.settings.Capacity), Probes: []result.Probe{}}}
	r.Capacity = c.found
	if p, ok := o.(interface{ Probe(result.Probe) }); ok {
		c.say = p.Probe
	}
	low, high, err := c.bracket(ctx)
	for err == nil && ctx.Err() == nil && high/low > capacityStep {
		middle := round3(math.Sqrt(low * high))
		var passed bool
		if passed, err = c.try(ctx, middle); passed {
			low = middle
		} else {
			high = middle
		}
	}
	if err != nil || ctx.Err() != nil {
		return err
	}
	return c.confirm(ctx, r, low)
}

func goalsText(goals []judge.Goal) string {
	var list []string
	for _, g := range goals {
		list = append(list, g.String())
	}
	return strings.Join(list, ",")
}

// round3 keeps rates readable.
func round3(v float64) float64 {
	if v < 1000 {
		return math.Round(v*10) / 10
	}
	return math.Round(v)
}

// bracket returns a rate that passes and a higher one that does not.
func (c *capacitySearch) bracket(ctx context.Context) (low, high float64, err error) {
	rate, ceiling, err := c.first(ctx)
	for ; err == nil && ctx.Err() == nil; rate = min(2*rate, ceiling) {
		var passed bool
		if passed, err = c.try(ctx, rate); err != nil {
			return 0, 0, err
		}
		switch {
		case passed && rate >= ceiling:
			return rate, rate, nil
		case passed:
			low = rate
		case low > 0:
			return low, rate, nil
		default: // the first rate failed: look below it
			return c.below(ctx, rate)
		}
	}
	return low, low, err
}

// below halves until a rate passes.
func (c *capacitySearch) below(ctx context.Context, high float64) (float64, float64, error) {
	for range 7 {
		rate := round3(high / 2)
		passed, err := c.try(ctx, rate)
		if err != nil || ctx.Err() != nil || passed {
			return rate, high, err
		}
		high = rate
	}
	return 0, 0, fmt.Errorf("%w: not even %s requests a second", ErrNoCapacity, result.Number(high))
}

// first returns the first rate to try and the highest: the given range, or the
// rate of a single caller.
func (c *capacitySearch) first(ctx context.Context) (rate, ceiling float64, err error) {
	r := c.session.settings.Range
	if r.Start > 0 {
		ceiling = r.End
		if r.Single || ceiling == 0 {
			ceiling = maxRate
		}
		return r.Start, ceiling, nil
	}
	l := result.Level{Load: result.Load{Mode: result.Concurrency, Value: 1}}
	if err := c.measure(ctx, &l, probeLength/3, 1); err != nil {
		return 0, 0, err
	}
	if l.Merged == nil || l.Merged.Requests == 0 {
		return 1, maxRate, nil
	}
	return round3(max(1, l.Merged.RequestRate())), maxRate, nil
}

// measure runs one level of so many windows of a given length.
func (c *capacitySearch) measure(ctx context.Context, l *result.Level, window time.Duration, windows int) error {
	s := *c.session
	s.settings.Plan.Mode, s.settings.Plan.Window = result.TimeWindows, window*5/6 // they last 1.2 times that
	s.settings.Plan.RequestCount, s.settings.Plan.Warmup = 0, 0
	s.settings.Plan.MaxTrials, s.settings.Plan.LatencyLimit = windows, 0
	s.settings.Plan.MaxErrors = 1
	s.settings.Goals = nil
	s.settings.Export = false
	err := s.level(ctx, l, quietly{c.o})
	if errors.Is(err, ErrNoAnswers) {
		return nil // no goal is met
	}
	return err
}

// quietly passes on only the progress of a measurement.
type quietly struct{ o result.Observer }

func (q quietly) Begin(result.Load) {}

func (q quietly) Window(int, *result.Window) {}

func (q quietly) End(*result.Level) {}

func (q quietly) Progress(p result.Progress) { q.o.Progress(p) }

func (c *capacitySearch) load(rate float64) result.Load {
	return result.Load{Mode: result.RequestRate, Value: rate, Distribution: c.session.settings.Distribution}
}

// try measures a rate briefly, twice when the first result only just missed the
// goal.
func (c *capacitySearch) try(ctx context.Context, rate float64) (bool, error) {
	length := min(max(probeLength, time.Duration(probeRequests/rate*float64(time.Second))), maxProbeLength)
	for again := true; ; again = false {
		l := result.Level{Load: c.load(rate)}
		if err := c.measure(ctx, &l, length, 1); err != nil {
			return false, err
		}
		p := c.judge(&l, false)
		if p.Passed || !again || ctx.Err() != nil || !c.near(&p, l.Merged) {
			return p.Passed, nil
		}
	}
}

// judge checks a measurement against the goals and records the outcome.
func (c *capacitySearch) judge(l *result.Level, long bool) result.Probe {
	p := result.Probe{Rate: l.Load.Value, Long: long, Passed: true, Results: judge.CheckGoals(c.goals, l.Merged)}
	for _, g := range p.Results {
		p.Passed = p.Passed && g.Met
	}
	if w := l.Merged; w != nil {
		p.Took = w.Duration
		if answered := w.RequestRate() + result.PerSecond(w.Failed, w.Duration); answered < kept*l.Load.Value {
			p.Passed, p.Why = false, fmt.Sprintf("%s a second were answered", result.Number(answered))
		}
	}
	c.found.Probes = append(c.found.Probes, p)
	if c.say != nil {
		c.say(p)
	}
	return p
}

// near reports whether a probe missed by so little that it may be chance.
func (c *capacitySearch) near(p *result.Probe, w *result.Window) bool {
	if p.Why != "" || w == nil || w.Requests == 0 {
		return false
	}
	return judge.Near(c.goals, p.Results)
}

// confirm measures the rate at length, and lower ones as long as it misses.
func (c *capacitySearch) confirm(ctx context.Context, r *result.Result, rate float64) error {
	for range maxConfirm {
		l := result.Level{Load: c.load(rate)}
		if err := c.measure(ctx, &l, confirmWindow, result.WindowsJudged); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if p := c.judge(&l, true); p.Passed {
			l.Goals = p.Results
			c.found.Rate = rate
			r.Levels = append(r.Levels, l)
			c.o.Begin(l.Load)
			c.o.End(&r.Levels[len(r.Levels)-1])
			return nil
		}
		rate = round3(rate / capacityStep)
	}
	return fmt.Errorf("%w for long: %s a second did for a moment only", ErrNoCapacity, result.Number(rate*capacityStep))
}
