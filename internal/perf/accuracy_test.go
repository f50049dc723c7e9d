package perf

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/perf/result"
)

const msec = float64(time.Millisecond)

// shapes returns distributions of latencies by their quantiles.
func shapes() map[string]func(q float64) time.Duration {
	pareto := func(q float64) time.Duration { return time.Duration(msec * math.Pow(1-q, -1/1.5)) }
	exponential := func(q float64) time.Duration { return time.Duration(msec * (1 - 4*math.Log(1-q))) }
	bimodal := func(q float64) time.Duration {
		if q > 0.93 {
			return 50 * time.Millisecond
		}
		return time.Millisecond
	}
	constant := func(float64) time.Duration { return 3 * time.Millisecond }
	return map[string]func(float64) time.Duration{"constant": constant, "bimodal": bimodal, "heavy tail": pareto, "exponential": exponential}
}

// TestPercentilesAreThoseOfTheDistribution holds reported percentiles against the
// distribution itself, in both kinds of loop. What chance alone does is taken out
// by drawing each quantile once, in an order of chance.
func TestPercentilesAreThoseOfTheDistribution(t *testing.T) {
	const n = 40_000
	for name, quantile := range shapes() {
		for _, s := range []Settings{
			{Mode: result.Concurrency, Range: single(16)},
			{Mode: result.RequestRate, Distribution: result.Poisson, Range: single(2000), Seed: 1},
		} {
			synctest.Test(t, func(t *testing.T) {
				drawn := make([]time.Duration, n)
				for i := range drawn {
					drawn[i] = quantile((float64(i) + 0.5) / n)
				}
				rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
				s.Plan = result.Plan{Mode: result.RequestCount, RequestCount: n, MaxOutstanding: 5000}
				r, err := measured(t, s, &fakeServer{latency: func(i int) time.Duration { return drawn[i-1] }}, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, q := range []float64{0.5, 0.9, 0.95, 0.99} {
					got, want := r.Levels[0].Merged.Latency.Quantile(q), quantile(q)
					if math.Abs(float64(got-want)) > 0.02*float64(want) {
						t.Errorf("%s, %s: quantile %v is %v, want %v within 2 %%", name, s.Mode, q, got, want)
					}
				}
			})
		}
	}
}

// TestStallsOf200msShowInAnOpenLoopAlone has a server stand still for 200 ms every
// five seconds: of the time users spend 4 % in it, which a closed loop of one
// caller hardly sees.
func TestStallsOf200msShowInAnOpenLoopAlone(t *testing.T) {
	const every, stall, usual = 5 * time.Second, 200 * time.Millisecond, time.Millisecond
	p99 := func(s Settings) (p99 time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			server := &fakeServer{latency: func(int) time.Duration {
				if into := time.Since(start) % every; into >= every-stall {
					return every - into + usual
				}
				return usual
			}}
			r, err := measured(t, s, server, nil)
			if err != nil {
				t.Fatal(err)
			}
			p99 = r.Levels[0].Merged.Latency.Quantile(0.99)
		})
		return p99
	}
	count := func(n int64) result.Plan { return result.Plan{Mode: result.RequestCount, RequestCount: n} }
	if got := p99(Settings{Mode: result.Concurrency, Range: single(1), Plan: count(20_000)}); got > 2*usual {
		t.Errorf("closed: got p99 %v, want that the stalls are hidden", got)
	}
	// 4 % of the requests come while it stands still, evenly: the worst 1 % of all
	// are the first quarter of a stall, and wait for at least 150 ms.
	want := 150*time.Millisecond + usual
	if got := p99(Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: single(1000), Plan: count(20_000)}); math.Abs(float64(got-want)) > 0.02*float64(want) {
		t.Errorf("open: got p99 %v, want %v within 2 %%", got, want)
	}
}

// TestClosedLoopObeysLittlesLaw is criterion P3 in a bubble's time; P5 goes along.
func TestClosedLoopObeysLittlesLaw(t *testing.T) {
	for _, n := range []float64{1, 4, 16, 64} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakeServer{}
			server.latency = func(int) time.Duration { return 2*time.Millisecond + time.Duration(server.inFlight)*time.Millisecond/2 }
			r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(n)}, server, nil)
			if err != nil {
				t.Fatal(err)
			}
			w := r.Levels[0].Merged
			if off := math.Abs(n-w.RequestRate()*w.Latency.Mean().Seconds()) / n; off > 0.02 {
				t.Errorf("%v callers: got %v a second of %v, off by %.2f%%, want 2 %%", n, w.RequestRate(), w.Latency.Mean(), 100*off)
			}
			if client, server := float64(w.Requests), float64(w.Server.Success.Count); math.Abs(client-server) > n+0.005*client {
				t.Errorf("%v callers: got %v at the client and %v at the server", n, client, server)
			}
		})
	}
}
