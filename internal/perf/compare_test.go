package perf

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
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
	run := func(s Settings, mean time.Duration) (r *result.Result) {
		synctest.Test(t, func(t *testing.T) {
			var err error
			if r, err = measured(t, s, &fakeServer{latency: wandering(rng, mean)}, nil); err != nil {
				t.Fatal(err)
			}
		})
		return r
	}
	side := func(r *result.Result) judge.Side {
		return judge.Side{Names: []string{"r"}, Results: []*result.Result{r}}
	}
	for name, s := range map[string]Settings{
		"closed": {Mode: result.Concurrency, Range: single(8)},
		"open":   {Mode: result.RequestRate, Distribution: result.Constant, Range: single(500)},
	} {
		same, slower := 0, 0
		for range 20 {
			a := run(s, 8*time.Millisecond)
			b := run(s, 8*time.Millisecond)
			c := run(s, 8800*time.Microsecond)
			if d, err := judge.Compare(side(a), side(b), 0.03); err != nil || d.Verdict == judge.NoDifference {
				same++
			}
			if d, err := judge.Compare(side(a), side(c), 0.03); err == nil && d.Verdict == judge.Slower {
				slower++
			}
		}
		t.Logf("%s: no difference %d of 20, slower %d of 20", name, same, slower)
		if same < 18 || slower < 18 {
			t.Errorf("%s: got no difference in %d of 20 of one build, slower in %d of 20 of another, want at least 18 of each", name, same, slower)
		}
	}
}
