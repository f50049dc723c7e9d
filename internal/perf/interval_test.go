package perf

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"shoal/internal/load"
	"shoal/internal/race"
)

// simulated returns a window of n slices of a server whose speed wanders: each
// slice is as fast as the one before it to the share phi, and new for the rest.
func simulated(rng *rand.Rand, n int, phi, deviation float64) *Window {
	w := &Window{Latency: &load.Histogram{}}
	speed := rng.NormFloat64() * deviation
	for range n {
		speed = phi*speed + math.Sqrt(1-phi*phi)*deviation*rng.NormFloat64()
		requests := int64(100 * (1 + speed))
		var h load.Histogram
		for range requests {
			d := time.Duration(float64(time.Millisecond) * (0.5 + 0.5*rng.ExpFloat64()) / (1 + speed))
			h.Record(d)
		}
		w.Requests, w.Rows, w.Duration = w.Requests+requests, w.Rows+requests, w.Duration+tickLength
		w.Latency.Merge(&h)
		w.cut(tickLength, requests, requests, &h)
	}
	return w
}

// TestIntervalsHoldTheTruth draws many runs of a server of known speed. Of a
// hundred intervals of 95 % some 95 should hold the truth, and they should not be
// wider than that takes.
func TestIntervalsHoldTheTruth(t *testing.T) {
	if race.Enabled {
		t.Skip("arithmetic over many runs, ten times slower under the race detector")
	}
	truth := simulated(rand.New(rand.NewPCG(9, 9)), 20_000, 0, 0.1)
	for _, phi := range []float64{0, 0.8} {
		t.Run(fmt.Sprintf("each moment like the last by %v", phi), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			const runs = 40
			held := make(map[string]int)
			wide := 0.0
			for range runs {
				w := simulated(rng, 180, phi, 0.1)
				want := map[string]float64{FigureThroughput: 1000 * (1 - 0.005), FigureMean: float64(truth.Latency.Mean())}
				for _, p := range []int{50, 90, 95, 99} {
					want[fmt.Sprintf("p%d", p)] = float64(truth.Latency.Quantile(float64(p) / 100))
				}
				for _, f := range figuresOf(&Plan{}, w) {
					if !f.Known() {
						t.Fatalf("got no interval of %s", f.Name)
					}
					if f.Low <= want[f.Name] && want[f.Name] <= f.High {
						held[f.Name]++
					}
					if f.Name == FigureThroughput {
						wide += (f.High/f.Low - 1) / 2 / runs
					}
				}
			}
			t.Logf("held %v of %d, ±%.2f%%", held, runs, 100*wide)
			for name, n := range held {
				if share := float64(n) / runs; share < 0.85 {
					t.Errorf("%s: got the truth in %.0f%% of the intervals, want about 95%%", name, 100*share)
				}
			}
			// What the mean of so many dependent values moves by, twice.
			exact := 1.96 * 0.1 / math.Sqrt(180) * math.Sqrt((1+phi)/(1-phi))
			if wide > 1.7*exact || wide < 0.6*exact {
				t.Errorf("got intervals of ±%.2f%%, want about %.2f%%", 100*wide, 100*exact)
			}
		})
	}
}

func TestFiguresWithoutEnoughToTellHaveNoInterval(t *testing.T) {
	few := simulated(rand.New(rand.NewPCG(1, 1)), 4, 0, 0.1)
	for _, f := range figuresOf(&Plan{}, few) {
		if f.Known() || f.Value == 0 {
			t.Errorf("four slices: got %+v, want a value without an interval", f)
		}
	}
	w := &Window{Latency: &load.Histogram{}}
	for range 50 {
		var h load.Histogram
		h.Record(time.Millisecond)
		w.Requests, w.Rows, w.Duration = w.Requests+1, w.Rows+1, w.Duration+tickLength
		w.Latency.Merge(&h)
		w.cut(tickLength, 1, 1, &h)
	}
	l := &Level{Figures: figuresOf(&Plan{}, w)}
	if !l.Figure("p50").Known() || l.Figure("p99").Known() {
		t.Errorf("50 requests: got p50 %+v and p99 %+v, want an interval of the first alone", l.Figure("p50"), l.Figure("p99"))
	}
}

func TestStudentT(t *testing.T) {
	for _, c := range []struct{ freedom, want float64 }{{1, 12.706}, {2, 4.303}, {3, 3.182}, {5, 2.571}, {10, 2.228}, {30, 2.042}, {1000, 1.962}} {
		if got := studentT(0.95, c.freedom); math.Abs(got-c.want) > 0.02*c.want {
			t.Errorf("%v degrees of freedom: got %.3f, want %.3f", c.freedom, got, c.want)
		}
	}
}

func TestLongWindowsJoinTheirSlices(t *testing.T) {
	w := simulated(rand.New(rand.NewPCG(1, 1)), 3*maxSlices, 0, 0.1)
	sum := total(w.slices)
	if len(w.slices) > maxSlices || sum.requests != w.Requests || sum.length != w.Duration {
		t.Errorf("got %d slices of %d requests in %v, want at most %d of %d in %v", len(w.slices), sum.requests, sum.length, maxSlices, w.Requests, w.Duration)
	}
	var counted uint64
	for i := range w.slices {
		for _, b := range w.slices[i].latency {
			counted += uint64(b.count)
		}
	}
	if counted != uint64(w.Requests) {
		t.Errorf("got %d latencies in the slices, want %d", counted, w.Requests)
	}
}

func TestRunLeavesAColdFirstWindowOut(t *testing.T) {
	for name, c := range map[string]struct {
		cold time.Duration
		want int // windows
	}{
		"warm from the start":       {0, 3},
		"cold for the first 300 ms": {280 * time.Millisecond, 4}, // none ends as a slice does
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			server := &fakeServer{latency: func(int) time.Duration {
				if time.Since(start) < c.cold {
					return 24 * time.Millisecond
				}
				return 20 * time.Millisecond
			}}
			// The windows agree all the same: the stability rule alone would not see it.
			r, err := measured(t, Settings{Mode: Concurrency, Range: single(4)}, server, nil)
			l := r.Levels[0]
			if err != nil || !l.Stable || len(l.Windows) != c.want {
				t.Fatalf("%s: got %d windows, stable %v, %v, want %d", name, len(l.Windows), l.Stable, err, c.want)
			}
			if max := l.Merged.Latency.Max(); max != 20*time.Millisecond || l.Merged.Duration != 3600*time.Millisecond {
				t.Errorf("%s: got a latency of %v in %v, want 20ms in three windows", name, max, l.Merged.Duration)
			}
			if (l.Windows[0].WarmUp != "") != (c.want == 4) {
				t.Errorf("%s: got %q", name, l.Windows[0].WarmUp)
			}
			var text strings.Builder
			report := &Report{Out: &text, Err: &text, Plan: &r.Plan, Target: &r.Target, Host: r.Host}
			report.End(&l)
			if got := strings.Contains(text.String(), "| warm-up: window 1 of 4 is left out, its first 300ms were not like the rest: latency 1.2x"); got != (c.want == 4) {
				t.Errorf("%s: got the report\n%s", name, &text)
			}
		})
	}
}

func TestThePipelineFillingIsNoWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// No answer can come within the first 150 ms.
		r, err := measured(t, Settings{Mode: Concurrency, Range: single(8)}, &fakeServer{latency: always(150 * time.Millisecond)}, nil)
		if l := r.Levels[0]; err != nil || l.Windows[0].WarmUp != "" {
			t.Errorf("got %q, %v, want no warm-up", l.Windows[0].WarmUp, err)
		}
	})
}

// Ten minutes of 2000 requests a second whose latencies are from 50 us to a second.
func TestSlicesOfALongWindowStaySmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	w := &Window{Latency: &load.Histogram{}}
	var h load.Histogram
	for range 6000 {
		h.Reset()
		for range 200 {
			h.Record(time.Duration(50e3 * math.Exp(10*rng.Float64())))
		}
		w.cut(tickLength, 200, 200, &h)
	}
	bytes := 0
	for _, s := range w.slices[:cap(w.slices)] { // what is behind the last is in memory too
		bytes += cap(s.latency) * int(unsafe.Sizeof(bin{}))
	}
	if bytes > 8<<20 {
		t.Errorf("got %d bytes of slices, want at most 8 MiB", bytes)
	}
}
