package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"shoal/internal/perf/result"
)

// The verdicts of a comparison.
const (
	Faster       = "faster"
	Slower       = "slower"
	NoDifference = "no difference seen"
	NotKnown     = "not known" // too little was measured
)

// A Comparison compares the runs of two builds.
type Comparison struct {
	Before []string `json:"before"` // the names of the results
	After  []string `json:"after"`
	// Levels are those that both sides measured, in the order of the first.
	Levels []LevelDiff `json:"levels"`
	// Verdict is that of all levels together.
	Verdict string `json:"verdict"`
	// Overall is the ratio behind the verdict: of the throughputs of closed
	// loops, and the inverse ratio of the latencies of open loops. Above 1 is
	// faster.
	Overall Ratio `json:"overall"`
	// Notes are sentences about what makes the comparison doubtful.
	Notes []string `json:"notes,omitempty"`
}

// A LevelDiff compares one level.
type LevelDiff struct {
	Load    result.Load  `json:"load"`
	Figures []FigureDiff `json:"figures"`
	Verdict string       `json:"verdict"`
	speed   estimate     // logarithm of how much faster
}

// A FigureDiff compares one figure.
type FigureDiff struct {
	Name    string  `json:"name"`
	Before  float64 `json:"before"`
	After   float64 `json:"after"`
	Ratio   Ratio   `json:"ratio"` // after by before
	Verdict string  `json:"verdict"`
}

// A Ratio has an interval of 99 %; both ends are zero when it is not known.
type Ratio struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
}

// A Side is the results of one build, by the names of their files.
type Side struct {
	Names   []string
	Results []*result.Result
}

// certain is the confidence of a verdict and of the intervals of a comparison. It is
// higher than that of a run's figures, since a comparison gives many verdicts at once.
const certain = 0.99

// Compare compares after with before. A difference counts when it is certain
// and at least as large as least, a share: two runs of one build differ by some
// percent for reasons that no interval of a single run can show.
func Compare(before, after Side, least float64) (*Comparison, error) {
	c := &Comparison{Before: before.Names, After: after.Names, Levels: []LevelDiff{}}
	var missing []string
	for _, l := range loads(before.Results) {
		a, b := measuredAt(before.Results, l), measuredAt(after.Results, l)
		if len(b) == 0 {
			missing = append(missing, l.String())
			continue
		}
		c.Levels = append(c.Levels, compareLevel(l, a, b, least))
	}
	if len(c.Levels) == 0 {
		return nil, fmt.Errorf("the results have no level in common: %s against %s", loadNames(before.Results), loadNames(after.Results))
	}
	var speeds []estimate
	for i := range c.Levels {
		speeds = append(speeds, c.Levels[i].speed)
	}
	overall := average(speeds)
	c.Overall, c.Verdict = overall.ratio(), overall.verdict(least)
	c.Notes = append(doubts(before, after), missingNote(missing)...)
	return c, nil
}

// loads returns the distinct levels that results have figures of.
func loads(results []*result.Result) []result.Load {
	var list []result.Load
	for _, r := range results {
		for _, l := range r.Reported() {
			if !slices.Contains(list, l.Load) {
				list = append(list, l.Load)
			}
		}
	}
	return list
}

func measuredAt(results []*result.Result, load result.Load) []*result.Level {
	var list []*result.Level
	for _, r := range results {
		for _, l := range r.Reported() {
			if l.Load == load {
				list = append(list, l)
			}
		}
	}
	return list
}

func compareLevel(load result.Load, before, after []*result.Level, least float64) LevelDiff {
	d := LevelDiff{Load: load}
	for i := range before[0].Figures {
		name := before[0].Figures[i].Name
		a, b := gather(before, name), gather(after, name)
		if !(a.value > 0 && b.value > 0) {
			continue
		}
		change := b.log.minus(a.log)
		speed := change
		if name != result.FigureThroughput {
			speed = speed.negated() // a longer latency is slower
		}
		d.Figures = append(d.Figures, FigureDiff{Name: name, Before: a.value, After: b.value, Ratio: change.ratio(), Verdict: speed.verdict(least)})
		// The throughput of an open loop is the schedule's.
		if load.Open() && name == result.FigureMean || !load.Open() && name == result.FigureThroughput {
			d.speed, d.Verdict = speed, speed.verdict(least)
		}
	}
	return d
}

// A gathered figure is the figure of all runs of a side.
type gathered struct {
	value float64 // their geometric mean
	log   estimate
}

// gather combines the runs of a side. Several runs show how much they differ
// from each other, which is more than a single run can show.
func gather(levels []*result.Level, name string) gathered {
	var inner []estimate
	var outer []float64
	for _, l := range levels {
		f := l.Figure(name)
		if f == nil || f.Value <= 0 {
			return gathered{}
		}
		inner = append(inner, estimate{math.Log(f.Value), f.Error * f.Error, f.Freedom})
		outer = append(outer, math.Log(f.Value))
	}
	e := average(inner)
	if n := float64(len(outer)); n > 1 {
		sum := 0.0
		for _, v := range outer {
			sum += (v - e.mean) * (v - e.mean)
		}
		if between := sum / (n - 1) / n; between > e.variance {
			e.variance, e.freedom = between, n-1
		}
	}
	return gathered{math.Exp(e.mean), e}
}

// An estimate is a value on a logarithmic scale with the variance of its error.
type estimate struct {
	mean     float64
	variance float64
	freedom  float64 // 0: the variance is not known
}

func (e estimate) negated() estimate { return estimate{-e.mean, e.variance, e.freedom} }

func (e estimate) minus(o estimate) estimate {
	d := estimate{mean: e.mean - o.mean, variance: e.variance + o.variance}
	if e.freedom > 0 && o.freedom > 0 {
		d.freedom = joint(e, o)
	}
	return d
}

// joint returns the degrees of freedom of a sum, by Welch and Satterthwaite.
func joint(list ...estimate) float64 {
	sum, parts, least := 0.0, 0.0, math.Inf(1)
	for _, e := range list {
		sum += e.variance
		parts += e.variance * e.variance / e.freedom
		least = min(least, e.freedom)
	}
	if parts == 0 {
		return least
	}
	return sum * sum / parts
}

// average returns the mean of independent estimates.
func average(list []estimate) estimate {
	n := float64(len(list))
	var e estimate
	known := true
	for _, o := range list {
		e.mean += o.mean / n
		e.variance += o.variance / n / n
		known = known && o.freedom > 0
	}
	if known && len(list) > 0 {
		e.freedom = joint(list...)
	}
	return e
}

func (e estimate) ratio() Ratio {
	r := Ratio{Value: math.Exp(e.mean)}
	if e.freedom > 0 {
		reach := studentT(certain, e.freedom) * math.Sqrt(e.variance)
		r.Low, r.High = math.Exp(e.mean-reach), math.Exp(e.mean+reach)
	}
	return r
}

// verdict returns the verdict of an estimate of speed.
func (e estimate) verdict(least float64) string {
	if e.freedom <= 0 {
		return NotKnown
	}
	reach := studentT(certain, e.freedom) * math.Sqrt(e.variance)
	switch {
	case math.Abs(e.mean) <= reach || math.Abs(e.mean) < math.Log1p(least):
		return NoDifference
	case e.mean > 0:
		return Faster
	default:
		return Slower
	}
}

// doubts lists reasons to doubt a comparison.
func doubts(before, after Side) []string {
	a, b := before.Results[0], after.Results[0]
	var list []string
	note := func(is bool, format string, args ...any) {
		if is {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	note(a.Target.Model != b.Target.Model, "the models differ: %s and %s", a.Target.Model, b.Target.Model)
	note(a.Target.Protocol != b.Target.Protocol, "the protocols differ: %s and %s", a.Target.Protocol, b.Target.Protocol)
	note(a.Plan.BatchSize != b.Plan.BatchSize, "the batch sizes differ: %d and %d", a.Plan.BatchSize, b.Plan.BatchSize)
	note(a.Plan.LatencyClock != b.Plan.LatencyClock, "the latencies begin at different moments: %q and %q", a.Plan.LatencyClock, b.Plan.LatencyClock)
	note(a.Host != b.Host, "the machines that made the load differ: %s (%d CPUs) and %s (%d CPUs)", a.Host.CPU, a.Host.CPUs, b.Host.CPU, b.Host.CPUs)
	for _, s := range []Side{before, after} {
		for i, r := range s.Results {
			for _, l := range r.Reported() {
				note(!l.Stable && l.Reason != "", "%s: %s was not stable (%s)", s.Names[i], l.Load.String(), l.Reason)
			}
		}
	}
	note(len(before.Results) == 1 && len(after.Results) == 1,
		"with one run a side, what differs between two runs of the same build is not seen; several files a side, a1.json,a2.json, show it")
	return list
}

func missingNote(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return []string{"measured on the first side alone: " + strings.Join(names, ", ")}
}

func loadNames(results []*result.Result) string {
	var names []string
	for _, l := range loads(results) {
		names = append(names, l.String())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
