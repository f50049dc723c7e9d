package judge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"shoal/internal/load"
	"shoal/internal/perf/result"
	"shoal/internal/race"
)

// simulated returns a window of n slices of a server whose speed wanders: each
// slice is as fast as the one before it to the share phi, and new for the rest.
func simulated(rng *rand.Rand, n int, phi, deviation float64) *result.Window {
	w := &result.Window{Latency: &load.Histogram{}}
	speed := rng.NormFloat64() * deviation
	for range n {
		speed = phi*speed + math.Sqrt(1-phi*phi)*deviation*rng.NormFloat64()
		requests := int64(100 * (1 + speed))
		var h load.Histogram
		for range requests {
			d := time.Duration(float64(time.Millisecond) * (0.5 + 0.5*rng.ExpFloat64()) / (1 + speed))
			h.Record(d)
		}
		w.Requests, w.Rows, w.Duration = w.Requests+requests, w.Rows+requests, w.Duration+result.TickLength
		w.Latency.Merge(&h)
		w.Cut(result.TickLength, requests, requests, &h)
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
				want := map[string]float64{result.FigureThroughput: 1000 * (1 - 0.005), result.FigureMean: float64(truth.Latency.Mean())}
				for _, p := range []int{50, 90, 95, 99} {
					want[fmt.Sprintf("p%d", p)] = float64(truth.Latency.Quantile(float64(p) / 100))
				}
				for _, f := range Figures(&result.Plan{}, w) {
					if !f.Known() {
						t.Fatalf("got no interval of %s", f.Name)
					}
					if f.Low <= want[f.Name] && want[f.Name] <= f.High {
						held[f.Name]++
					}
					if f.Name == result.FigureThroughput {
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
	for _, f := range Figures(&result.Plan{}, few) {
		if f.Known() || f.Value == 0 {
			t.Errorf("four slices: got %+v, want a value without an interval", f)
		}
	}
	w := &result.Window{Latency: &load.Histogram{}}
	for range 50 {
		var h load.Histogram
		h.Record(time.Millisecond)
		w.Requests, w.Rows, w.Duration = w.Requests+1, w.Rows+1, w.Duration+result.TickLength
		w.Latency.Merge(&h)
		w.Cut(result.TickLength, 1, 1, &h)
	}
	l := &result.Level{Figures: Figures(&result.Plan{}, w)}
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
	w := simulated(rand.New(rand.NewPCG(1, 1)), 3*result.MaxSlices, 0, 0.1)
	sum := total(w.Slices)
	if len(w.Slices) > result.MaxSlices || sum.Requests != w.Requests || sum.Length != w.Duration {
		t.Errorf("got %d slices of %d requests in %v, want at most %d of %d in %v", len(w.Slices), sum.Requests, sum.Length, result.MaxSlices, w.Requests, w.Duration)
	}
	var counted uint64
	for i := range w.Slices {
		for _, b := range w.Slices[i].Latency {
			counted += uint64(b.Count)
		}
	}
	if counted != uint64(w.Requests) {
		t.Errorf("got %d latencies in the slices, want %d", counted, w.Requests)
	}
}

// Ten minutes of 2000 requests a second whose latencies are from 50 us to a second.
func TestSlicesOfALongWindowStaySmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	w := &result.Window{Latency: &load.Histogram{}}
	var h load.Histogram
	for range 6000 {
		h.Reset()
		for range 200 {
			h.Record(time.Duration(50e3 * math.Exp(10*rng.Float64())))
		}
		w.Cut(result.TickLength, 200, 200, &h)
	}
	bytes := 0
	for _, s := range w.Slices[:cap(w.Slices)] { // what is behind the last is in memory too
		bytes += cap(s.Latency) * int(unsafe.Sizeof(result.Bin{}))
	}
	if bytes > 8<<20 {
		t.Errorf("got %d bytes of slices, want at most 8 MiB", bytes)
	}
}
