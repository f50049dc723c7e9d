package perf

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/race"
)

// wandering returns the latencies of a server whose speed wanders by some percent
// around what it is in this run.
func wandering(rng *rand.Rand, mean time.Duration) func(int) time.Duration {
	start := time.Now()
	run := 1 + 0.005*rng.NormFloat64() // no two runs are alike
	drift := rng.Float64() * 6
	return func(int) time.Duration {
		slow := 1 + 0.03*math.Sin(drift+6*time.Since(start).Seconds())
		return time.Duration(float64(mean) * run * slow * (0.7 + 0.3*rng.ExpFloat64()))
	}
}

// TestCompareTellsBuildsApart is criterion P15: two runs of one build differ in
// nothing, one of a build that is 10 % slower is slower, in at least 18 of 20.
func TestCompareTellsBuildsApart(t *testing.T) {
	if race.Enabled {
		t.Skip("arithmetic over many runs, ten times slower under the race detector")
	}
	rng := rand.New(rand.NewPCG(15, 15))
	run := func(s Settings, mean time.Duration) (r *Result) {
		synctest.Test(t, func(t *testing.T) {
			var err error
			if r, err = measured(t, s, &fakeServer{latency: wandering(rng, mean)}, nil); err != nil {
				t.Fatal(err)
			}
		})
		return r
	}
	side := func(r *Result) Side { return Side{[]string{"r"}, []*Result{r}} }
	for name, s := range map[string]Settings{
		"closed": {Mode: Concurrency, Range: single(8)},
		"open":   {Mode: RequestRate, Distribution: Constant, Range: single(500)},
	} {
		same, slower := 0, 0
		for range 20 {
			a := run(s, 8*time.Millisecond)
			b := run(s, 8*time.Millisecond)
			c := run(s, 8800*time.Microsecond)
			if d, err := Compare(side(a), side(b), 0.03); err != nil || d.Verdict == NoDifference {
				same++
			}
			if d, err := Compare(side(a), side(c), 0.03); err == nil && d.Verdict == Slower {
				slower++
			}
		}
		t.Logf("%s: no difference %d of 20, slower %d of 20", name, same, slower)
		if same < 18 || slower < 18 {
			t.Errorf("%s: got no difference in %d of 20 of one build, slower in %d of 20 of another, want at least 18 of each", name, same, slower)
		}
	}
}

// oneLevel returns a result with these figures.
func oneLevel(concurrency, throughput, mean, relative float64) *Result {
	w := &Window{Requests: 1}
	l := Level{Load: Load{Mode: Concurrency, Value: concurrency}, Merged: w, Stable: true, Figures: []Figure{
		{Name: FigureThroughput, Value: throughput}, {Name: FigureMean, Value: mean}, {Name: "p99", Value: 2 * mean},
	}}
	for i := range l.Figures {
		l.Figures[i].set(relative, 20)
	}
	return &Result{Format: resultFormat, Levels: []Level{l}}
}

func TestCompareJudgesByIntervals(t *testing.T) {
	side := func(results ...*Result) Side { return Side{make([]string, len(results)), results} }
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
		"too little was measured":          {side(a), side(&Result{Levels: []Level{{Load: Load{Mode: Concurrency, Value: 4}, Merged: &Window{Requests: 1}, Stable: true, Figures: []Figure{{Name: FigureThroughput, Value: 3}}}}}), NotKnown},
	} {
		d, err := Compare(c.before, c.after, 0.03)
		if err != nil || d.Verdict != c.want {
			t.Errorf("%s: got %+v, %v, want %s", name, d, err, c.want)
		}
	}
}

func TestComparePrintsRatiosAndSaysWhatItCannotKnow(t *testing.T) {
	a, b := oneLevel(4, 1000, 4e6, 0.01), oneLevel(4, 900, 4.4e6, 0.01)
	a.Levels = append(a.Levels, oneLevel(8, 1500, 5e6, 0.01).Levels...)
	b.Target.Model = "other"
	d, err := Compare(Side{[]string{"a.json"}, []*Result{a}}, Side{[]string{"b.json"}, []*Result{b}}, 0.03)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := d.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Request concurrency: 4: slower\n", "    throughput  1000/s  900/s  0.900  0.875 to 0.926  slower\n", "mean", "4.4ms  1.100",
		"note: the models differ:", "note: measured on the first side alone: concurrency 8", "note: with one run a side", "verdict: slower (0.900 times as fast, 95% interval",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%s, want %q in it", &text, want)
		}
	}
	data, err := json.Marshal(d)
	if err != nil || !strings.Contains(string(data), `"verdict":"slower"`) {
		t.Errorf("got %s, %v, want the verdict in JSON", data, err)
	}
	if _, err := Compare(Side{[]string{"a"}, []*Result{oneLevel(1, 1, 1, 1)}}, Side{[]string{"b"}, []*Result{b}}, 0); err == nil || !strings.Contains(err.Error(), "no level in common") {
		t.Errorf("got %v, want that there is no level in common", err)
	}
}
