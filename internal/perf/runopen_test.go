package perf

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/perf/result"
)

// TestOpenLoopShowsAStallThatOthersHide is criterion P6: 500 requests a second,
// ten seconds, one of them without answers.
func TestOpenLoopShowsAStallThatOthersHide(t *testing.T) {
	run := func(t *testing.T, mode string, value float64, p result.Plan) *result.Window {
		t.Helper()
		var w *result.Window
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			server := &fakeServer{latency: func(int) time.Duration {
				at := time.Since(start)
				if at >= 4*time.Second && at < 5*time.Second {
					return 5*time.Second - at + 200*time.Microsecond
				}
				return 200 * time.Microsecond
			}}
			p.Mode, p.RequestCount = result.RequestCount, 5000
			if mode == result.Concurrency {
				p.RequestCount = 40_000
			}
			r, err := measured(t, Settings{Mode: mode, Distribution: result.Constant, Range: single(value), Plan: p}, server, nil)
			if err != nil {
				t.Fatal(err)
			}
			w = r.Levels[0].Merged
		})
		return w
	}
	w := run(t, result.RequestRate, 500, result.Plan{LatencyClock: result.ScheduleClock})
	p95, p99 := w.Latency.Quantile(0.95), w.Latency.Quantile(0.99)
	if p99 < 850*time.Millisecond || p99 > 1050*time.Millisecond || p95 < 400*time.Millisecond || p95 > 700*time.Millisecond {
		t.Errorf("schedule clock: got p95 %v and p99 %v, want about 500ms and 900ms", p95, p99)
	}
	w = run(t, result.RequestRate, 500, result.Plan{LatencyClock: result.SendClock, MaxOutstanding: 4})
	if p99 := w.Latency.Quantile(0.99); p99 >= 50*time.Millisecond {
		t.Errorf("send clock: got p99 %v, want below 50ms", p99)
	}
	if lag := w.SendLag.Max(); lag < 900*time.Millisecond || w.MaxInFlight != 4 {
		t.Errorf("four at once: got a send lag of %v with %d in flight, want about 1s with 4", lag, w.MaxInFlight)
	}
	w = run(t, result.RequestRate, 500, result.Plan{LatencyClock: result.ScheduleClock, MaxOutstanding: 4})
	if p99 := w.Latency.Quantile(0.99); p99 < 850*time.Millisecond {
		t.Errorf("four at once, schedule clock: got p99 %v, want that waiting counts", p99)
	}
	w = run(t, result.Concurrency, 1, result.Plan{})
	if p99 := w.Latency.Quantile(0.99); p99 >= time.Millisecond {
		t.Errorf("closed loop: got p99 %v, want that it hides the stall", p99)
	}
}

func TestPercentilesAreTrueForKnownDistributions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, latency := range map[string]func(int) time.Duration{
		"constant": always(3 * time.Millisecond),
		"bimodal": func(n int) time.Duration {
			if n%20 == 0 {
				return 50 * time.Millisecond
			}
			return time.Millisecond
		},
		"heavy tail": func(int) time.Duration {
			return time.Duration(float64(time.Millisecond) * math.Pow(1-rng.Float64(), -1/1.5))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakeServer{latency: latency}
			r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(8), Plan: result.Plan{Mode: result.RequestCount, RequestCount: 20_000}}, server, nil)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(server.took)
			for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999} {
				want := server.took[int(math.Ceil(q*float64(len(server.took))))-1]
				got := r.Levels[0].Merged.Latency.Quantile(q)
				if math.Abs(float64(got-want)) > 0.02*float64(want) {
					t.Errorf("%s: quantile %v is %v, want %v within 2 %%", name, q, got, want)
				}
			}
		})
	}
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	for _, rate := range []float64{200, 1000, 2000} {
		synctest.Test(t, func(t *testing.T) {
			r, err := measured(t, Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: single(rate)}, &fakeServer{latency: always(3 * time.Millisecond)}, nil)
			w := r.Levels[0].Merged
			if got := w.RequestRate(); err != nil || math.Abs(got-rate) > 0.005*rate || w.SendLag.Max() > 0 || w.Delayed > 0 {
				t.Errorf("got %v a second, lag %v, %v, want %v", got, w.SendLag.Max(), err, rate)
			}
		})
	}
}

func TestOpenLoopSaysThatTheServerDoesNotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := measured(t, Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: single(1000), Plan: result.Plan{MaxOutstanding: 5}},
			&fakeServer{latency: always(10 * time.Millisecond)}, nil)
		l := r.Levels[0]
		if err != nil || math.Abs(l.Merged.RequestRate()-500) > 5 || l.Merged.DelayedShare() < 0.99 {
			t.Errorf("got %v a second, %v delayed, %v, want 500 and all", l.Merged.RequestRate(), l.Merged.DelayedShare(), err)
		}
		if !slices.ContainsFunc(l.Warnings, func(s string) bool { return strings.Contains(s, "--max-outstanding") }) {
			t.Errorf("got warnings %q, want one that names the flag", l.Warnings)
		}
	})
}
