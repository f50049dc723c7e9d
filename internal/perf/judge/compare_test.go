package judge

import (
	"testing"

	"shoal/internal/perf/result"
)

// oneLevel returns a result with these figures.
func oneLevel(concurrency, throughput, mean, relative float64) *result.Result {
	w := &result.Window{Requests: 1}
	l := result.Level{Load: result.Load{Mode: result.Concurrency, Value: concurrency}, Merged: w, Stable: true, Figures: []result.Figure{
		{Name: result.FigureThroughput, Value: throughput}, {Name: result.FigureMean, Value: mean}, {Name: "p99", Value: 2 * mean},
	}}
	for i := range l.Figures {
		setInterval(&l.Figures[i], relative, 20)
	}
	return &result.Result{Format: result.Format, Levels: []result.Level{l}}
}

func TestCompareJudgesByIntervals(t *testing.T) {
	side := func(results ...*result.Result) Side { return Side{make([]string, len(results)), results} }
	a := oneLevel(4, 1000, 4e6, 0.01)
	for name, c := range map[string]struct {
		before, after Side
		want          string
	}{
		"beyond its interval":              {side(a), side(oneLevel(4, 900, 4.4e6, 0.01)), Slower},
		"more is faster":                   {side(a), side(oneLevel(4, 1100, 3.6e6, 0.01)), Faster},
		"within its interval":              {side(a), side(oneLevel(4, 900, 4.4e6, 0.05)), NoDifference},
		"certain and too small to matter":  {side(oneLevel(4, 1000, 4e6, 0.001)), side(oneLevel(4, 985, 4.1e6, 0.001)), NoDifference},
		"runs of a side differ among them": {side(a, oneLevel(4, 1200, 4e6, 0.01)), side(oneLevel(4, 1000, 4e6, 0.01), oneLevel(4, 850, 4.2e6, 0.01)), NoDifference},
		"several runs agree":               {side(a, oneLevel(4, 1010, 4e6, 0.01), oneLevel(4, 990, 4e6, 0.01)), side(oneLevel(4, 900, 4.4e6, 0.01), oneLevel(4, 905, 4.4e6, 0.01)), Slower},
		"too little was measured":          {side(a), side(&result.Result{Levels: []result.Level{{Load: result.Load{Mode: result.Concurrency, Value: 4}, Merged: &result.Window{Requests: 1}, Stable: true, Figures: []result.Figure{{Name: result.FigureThroughput, Value: 3}}}}}), NotKnown},
	} {
		d, err := Compare(c.before, c.after, 0.03)
		if err != nil || d.Verdict != c.want {
			t.Errorf("%s: got %+v, %v, want %s", name, d, err, c.want)
		}
	}
}
