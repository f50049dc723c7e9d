package judge

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"shoal/internal/perf/result"
)

// A Goal is a limit for a level, such as p99<10ms.
type Goal struct {
	figure   string  // a percentile "p99.9", or one of the names below
	quantile float64 // of a percentile
	above    bool    // the figure is to be above the limit, not below
	equal    bool    // or equal to it
	limit    float64 // nanoseconds, a share, or a number a second
	text     string  // as it was given
}

// The figures of goals besides percentiles and those of intervals.
const (
	goalMax   = "max"
	goalError = "error"
	goalRate  = "rate"
)

// String returns the goal as it was given.
func (g Goal) String() string { return g.text }

// Allowance returns the share of requests that the goals let fail; false when
// they do not say.
func Allowance(goals []Goal) (float64, bool) {
	for _, g := range goals {
		if g.figure == goalError && !g.above {
			return g.limit, true
		}
	}
	return 0, false
}

// ParseGoals reads goals such as p99<10ms,error<0.1%,throughput>500. Latencies are
// p50 to p99.99, mean (or avg) and max; throughput is rows a second, rate requests
// a second, error the share that failed.
func ParseGoals(text string) ([]Goal, error) {
	var goals []Goal
	for part := range strings.SplitSeq(text, ",") {
		g, err := parseGoal(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		goals = append(goals, g)
	}
	return goals, nil
}

func parseGoal(text string) (Goal, error) {
	at := strings.IndexAny(text, "<>")
	if at < 0 {
		return Goal{}, fmt.Errorf("%q is not a goal such as p99<10ms: there is no < or > in it", text)
	}
	g := Goal{figure: strings.ToLower(strings.TrimSpace(text[:at])), above: text[at] == '>', text: text}
	value := text[at+1:]
	if rest, ok := strings.CutPrefix(value, "="); ok {
		g.equal, value = true, rest
	}
	var err error
	g.limit, err = g.parseLimit(strings.TrimSpace(value))
	if err != nil {
		return Goal{}, fmt.Errorf("the goal %q: %w", text, err)
	}
	return g, nil
}

// parseLimit reads the value of a goal in the unit of its figure.
func (g *Goal) parseLimit(text string) (float64, error) {
	switch g.figure {
	case "avg":
		g.figure = result.FigureMean
		return parseLatency(text)
	case result.FigureMean, goalMax:
		return parseLatency(text)
	case result.FigureThroughput, goalRate:
		return parseAmount(text)
	case goalError, "errors":
		g.figure = goalError
		return parseShare(text)
	}
	number, ok := strings.CutPrefix(g.figure, "p")
	q, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(q > 0 && q < 100) {
		return 0, fmt.Errorf("%q: want p50 to p99.99, mean, max, throughput, rate or error", g.figure)
	}
	g.quantile = q / 100
	return parseLatency(text)
}

func parseLatency(text string) (float64, error) {
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a latency such as 10ms or 500us", text)
	}
	return float64(d), nil
}

func parseAmount(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a number a second", text)
	}
	return v, nil
}

func parseShare(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) {
		return 0, fmt.Errorf("%q is not a share such as 0.1%%", text)
	}
	if ok {
		v /= 100
	}
	if v > 1 {
		return 0, errors.New("a share is at most 100%")
	}
	return v, nil
}

// check holds a level's windows against the goal. What was not measured does not
// reach it.
func (g Goal) check(w *result.Window) result.GoalResult {
	if w == nil || w.Requests == 0 && g.figure != goalError {
		return result.GoalResult{Goal: g.text, Shown: "no answers"}
	}
	r := result.GoalResult{Goal: g.text}
	latency := func(d time.Duration) { r.Value, r.Shown = float64(d), d.Round(time.Microsecond).String() }
	switch g.figure {
	case result.FigureMean:
		latency(w.Latency.Mean())
	case goalMax:
		latency(w.Latency.Max())
	case result.FigureThroughput:
		r.Value, r.Shown = w.Throughput(), result.Number(w.Throughput())
	case goalRate:
		r.Value, r.Shown = w.RequestRate(), result.Number(w.RequestRate())
	case goalError:
		r.Value, r.Shown = w.FailedShare(), result.Percent(w.FailedShare())
	default:
		latency(w.Latency.Quantile(g.quantile))
	}
	r.Met = g.equal && r.Value == g.limit || !g.above && r.Value < g.limit || g.above && r.Value > g.limit
	return r
}

// CheckGoals holds a level against all goals.
func CheckGoals(goals []Goal, w *result.Window) []result.GoalResult {
	var list []result.GoalResult
	for _, g := range goals {
		list = append(list, g.check(w))
	}
	return list
}

// nearMiss is how far beyond a goal a short measurement may be by chance.
const nearMiss = 1.5

// Near says whether results, which are of these goals, miss none of them by more
// than a hiccup of the machine may do.
func Near(goals []Goal, results []result.GoalResult) bool {
	for i, g := range results {
		if limit := goals[i].limit; !g.Met && !(g.Value < nearMiss*limit && g.Value > limit/nearMiss) {
			return false
		}
	}
	return true
}
