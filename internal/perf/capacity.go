package perf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// A Capacity is what a search for the highest rate came to.
type Capacity struct {
	Goal string `json:"goal"`
	// Rate is the highest rate, in requests a second, that was measured at length
	// and met the goal; 0 when none did.
	Rate   float64 `json:"rate"`
	Probes []Probe `json:"probes"` // in their order
}

// A Probe is a short measurement of a search.
type Probe struct {
	Rate    float64       `json:"rate"`
	Took    time.Duration `json:"took_ns"`
	Long    bool          `json:"long,omitempty"` // the measurement that confirms
	Passed  bool          `json:"passed"`
	Results []GoalResult  `json:"slo"`
	Why     string        `json:"why,omitempty"` // it did not pass, when the goal does not tell
}

const (
	// probeLength is how long a rate is tried; a low one longer, so that its
	// percentiles mean something.
	probeLength    = 1500 * time.Millisecond
	maxProbeLength = 10 * time.Second
	probeRequests  = 200
	// capacityStep is how near the highest rate that passes and the lowest that
	// does not must come.
	capacityStep = 1.02
	// confirmWindow is a window of the measurement that confirms the rate found.
	confirmWindow = 1500 * time.Millisecond
	// maxConfirm is how many rates are measured at length at most.
	maxConfirm = 3
	// kept is the share of the rate that must be answered; less means that the
	// rest waits in a queue that grows.
	kept = 0.97
	// nearMiss is how far beyond a goal a probe may be to be tried again: a hiccup
	// of the machine spoils a short one.
	nearMiss = 1.5
	// maxRate ends the search of a server that answers whatever is sent.
	maxRate = 1e6
)

// ErrNoCapacity ends a search in which no rate met the goal.
var ErrNoCapacity = errors.New("no rate met the goal of --find-capacity")

// A capacitySearch looks for the highest rate of an open loop that meets goals:
// it doubles until one does not, then halves the gap.
type capacitySearch struct {
	session *Session
	goals   []Goal
	found   *Capacity
	o       Observer
	say     func(Probe)
}

// findCapacity searches and measures the rate found at length, as a level.
func (s *Session) findCapacity(ctx context.Context, r *Result, o Observer) error {
	c := &capacitySearch{session: s, goals: s.settings.Capacity, o: o, found: &Capacity{Goal: goalsText(s.settings.Capacity), Probes: []Probe{}}}
	r.Capacity = c.found
	if p, ok := o.(interface{ Probe(Probe) }); ok {
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

func goalsText(goals []Goal) string {
	text := ""
	for i, g := range goals {
		if i > 0 {
			text += ","
		}
		text += g.text
	}
	return text
}

// round3 keeps rates readable.
func round3(v float64) float64 {
	if v < 1000 {
		return math.Round(v*10) / 10
	}
	return math.Round(v)
}

// bracket returns a rate that passes and one above it that does not.
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
		default: // the very first: look below it
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
	return 0, 0, fmt.Errorf("%w: not even %s requests a second", ErrNoCapacity, number(high))
}

// first returns where to begin and where to end: the range that was given, or what
// one caller alone gets.
func (c *capacitySearch) first(ctx context.Context) (rate, ceiling float64, err error) {
	r := c.session.settings.Range
	if r.Start > 0 {
		ceiling = r.End
		if r.Single || ceiling == 0 {
			ceiling = maxRate
		}
		return r.Start, ceiling, nil
	}
	l := Level{Load: Load{Mode: Concurrency, Value: 1}}
	if err := c.measure(ctx, &l, probeLength/3, 1); err != nil {
		return 0, 0, err
	}
	if l.Merged == nil || l.Merged.Requests == 0 {
		return 1, maxRate, nil
	}
	return round3(max(1, l.Merged.RequestRate())), maxRate, nil
}

// measure runs one level of so many windows of a given length.
func (c *capacitySearch) measure(ctx context.Context, l *Level, window time.Duration, windows int) error {
	s := *c.session
	s.settings.Plan.Mode, s.settings.Plan.Window = TimeWindows, window*5/6 // they last 1.2 times that
	s.settings.Plan.RequestCount, s.settings.Plan.Warmup = 0, 0
	s.settings.Plan.MaxTrials, s.settings.Plan.LatencyLimit = windows, 0
	s.settings.Plan.MaxErrors = 1
	s.settings.Goals = nil
	s.settings.Export = false
	err := s.level(ctx, l, quietly{c.o})
	if errors.Is(err, ErrNoAnswers) {
		return nil // which no goal meets
	}
	return err
}

// quietly passes on only how a measurement goes.
type quietly struct{ o Observer }

func (q quietly) Begin(Load)          {}
func (q quietly) Window(int, *Window) {}
func (q quietly) End(*Level)          {}
func (q quietly) Progress(p Progress) { q.o.Progress(p) }

func (c *capacitySearch) load(rate float64) Load {
	return Load{Mode: RequestRate, Value: rate, Distribution: c.session.settings.Distribution}
}

// try measures a rate for a moment, twice when the first missed by little.
func (c *capacitySearch) try(ctx context.Context, rate float64) (bool, error) {
	length := min(max(probeLength, time.Duration(probeRequests/rate*float64(time.Second))), maxProbeLength)
	for again := true; ; again = false {
		l := Level{Load: c.load(rate)}
		if err := c.measure(ctx, &l, length, 1); err != nil {
			return false, err
		}
		p := c.judge(&l, false)
		if p.Passed || !again || ctx.Err() != nil || !c.near(&p, l.Merged) {
			return p.Passed, nil
		}
	}
}

// judge holds a measurement against the goals and notes what came of it.
func (c *capacitySearch) judge(l *Level, long bool) Probe {
	p := Probe{Rate: l.Load.Value, Long: long, Passed: true, Results: checkGoals(c.goals, l.Merged)}
	for _, g := range p.Results {
		p.Passed = p.Passed && g.Met
	}
	if w := l.Merged; w != nil {
		p.Took = w.Duration
		if answered := w.RequestRate() + perSecond(w.Failed, w.Duration); answered < kept*l.Load.Value {
			p.Passed, p.Why = false, fmt.Sprintf("%s a second were answered", number(answered))
		}
	}
	c.found.Probes = append(c.found.Probes, p)
	if c.say != nil {
		c.say(p)
	}
	return p
}

// near says whether a probe missed by so little that chance may have done it.
func (c *capacitySearch) near(p *Probe, w *Window) bool {
	if p.Why != "" || w == nil || w.Requests == 0 {
		return false
	}
	for i, g := range p.Results {
		limit := c.goals[i].limit
		if !g.Met && !(g.Value < nearMiss*limit && g.Value > limit/nearMiss) {
			return false
		}
	}
	return true
}

// confirm measures the rate at length, and lower ones as long as it misses.
func (c *capacitySearch) confirm(ctx context.Context, r *Result, rate float64) error {
	for range maxConfirm {
		l := Level{Load: c.load(rate)}
		if err := c.measure(ctx, &l, confirmWindow, windowsJudged); err != nil {
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
	return fmt.Errorf("%w for long: %s a second did for a moment only", ErrNoCapacity, number(rate*capacityStep))
}

// Probe prints what a probe of a search came to.
func (r *Report) Probe(p Probe) {
	verdict, kind := "misses", "probe"
	if p.Passed {
		verdict = "meets"
	}
	if p.Long {
		kind = "confirm"
	}
	fmt.Fprintf(r.Out, "| %s: %s requests/s %s the goal (", kind, number(p.Rate), verdict)
	for _, g := range p.Results {
		fmt.Fprintf(r.Out, "%s: %s; ", g.Goal, g.shown)
	}
	if p.Why != "" {
		fmt.Fprintf(r.Out, "%s; ", p.Why)
	}
	fmt.Fprintf(r.Out, "%.1f s)\n", p.Took.Seconds())
}

// capacity prints what a search found.
func (r *Report) capacity(c *Capacity) {
	if c == nil {
		return
	}
	if c.Rate > 0 {
		fmt.Fprintf(r.Out, "| capacity: %s requests/s with %s\n", number(c.Rate), c.Goal)
		return
	}
	best := 0.0
	for _, p := range c.Probes {
		if p.Passed {
			best = max(best, p.Rate)
		}
	}
	fmt.Fprintf(r.Out, "| capacity: not found; the highest probe that met %s had %s requests/s\n", c.Goal, number(best))
}
