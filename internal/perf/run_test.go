package perf

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/perf/result"
)

func TestRunMeasuresALevelInThreeWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{latency: always(10 * time.Millisecond)}
		book := &logbook{}
		start := time.Now()
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(4)}, server, book)
		if err != nil {
			t.Fatal(err)
		}
		l := r.Levels[0]
		w := l.Merged
		if len(r.Levels) != 1 || !l.Stable || len(l.Windows) != 3 || book.windows != 3 || book.ticks < 30 {
			t.Fatalf("got %d levels, %d windows, stable %v, %d ticks, want one stable level of 3 windows", len(r.Levels), len(l.Windows), l.Stable, book.ticks)
		}
		if w.Duration != 3600*time.Millisecond || time.Since(start) > 3700*time.Millisecond {
			t.Errorf("got %v, want three windows of 1.2 s and no more", w.Duration)
		}
		// 4 callers, 10 ms each, 2 rows a request.
		if got := w.Throughput(); math.Abs(got-800) > 8 || server.most != 4 {
			t.Errorf("got %v rows/s with %d under way, want 800 with 4", got, server.most)
		}
		if p50, p99 := w.Latency.Quantile(0.5), w.Latency.Quantile(0.99); p50 != 10*time.Millisecond || p99 != p50 {
			t.Errorf("got p50 %v and p99 %v, want 10ms", p50, p99)
		}
		if s := w.Server; s == nil || math.Abs(float64(s.Success.Count)-float64(w.Requests)) > 4 || s.MeanBatch() != 2 || s.Queue.Mean() != 3000 {
			t.Errorf("got %+v for %d requests, want the server's account of them", s, w.Requests)
		}
		if n := len(l.Timeline); n < 36 || l.Timeline[n-1].At > 3700*time.Millisecond {
			t.Errorf("got a timeline of %d ticks, want one for each tenth of a second", n)
		}
	})
}

func TestRunTakesTheLastThreeWindowsThatAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := &fakeServer{latency: func(int) time.Duration {
			if time.Since(start) < 2500*time.Millisecond {
				return 40 * time.Millisecond // a cold start
			}
			return 10 * time.Millisecond
		}}
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(1)}, server, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := r.Levels[0]
		if !l.Stable || len(l.Windows) < 5 || len(l.Windows) > 6 || l.Merged.Latency.Quantile(0.99) > 11*time.Millisecond {
			t.Errorf("got %d windows, stable %v, p99 %v, want the cold ones left out", len(l.Windows), l.Stable, l.Merged.Latency.Quantile(0.99))
		}
	})
}

// restless returns latencies that change with time, so that windows never agree.
func restless() func(int) time.Duration {
	start := time.Now()
	return func(int) time.Duration {
		return time.Duration(5+10*int(time.Since(start)/(1200*time.Millisecond)%3)) * time.Millisecond
	}
}

func TestRunReportsALevelThatIsNotStableAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: Range{1, 2, 1, false}, Plan: result.Plan{MaxTrials: 4}}, &fakeServer{latency: restless()}, book)
		if err != nil || len(r.Levels) != 2 || len(book.begun) != 2 {
			t.Fatalf("got %d levels, %v, want both", len(r.Levels), err)
		}
		for _, l := range r.Levels {
			if l.Stable || !strings.Contains(l.Reason, "throughput spread") || len(l.Windows) != 4 || l.Merged == nil {
				t.Errorf("got stable %v, %q, %d windows, want a reason and figures", l.Stable, l.Reason, len(l.Windows))
			}
		}
		if got := len(r.Reported()); got != 2 {
			t.Errorf("got %d levels reported, want 2", got)
		}
	})
}

func TestRunWithFewerThanThreeTrialsReportsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(1), Plan: result.Plan{MaxTrials: 1}}, &fakeServer{latency: always(time.Millisecond)}, nil)
		if err != nil || r.Levels[0].Stable || math.Abs(float64(r.Levels[0].Merged.Requests)-1200) > 2 || r.Levels[0].Reason != "1 of 3 windows" {
			t.Errorf("got %+v, %v, want one window, not called stable", r.Levels[0].Reason, err)
		}
	})
}

func TestAsyncRunPassesWhenOnlyLatencyVaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Throughput is the schedule's, latency wanders.
		settings := Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: single(100), Plan: result.Plan{Async: true, MaxTrials: 4}}
		r, err := measured(t, settings, &fakeServer{latency: restless()}, nil)
		if l := r.Levels[0]; err != nil || !l.Stable || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "latency is not stabilizing") {
			t.Errorf("got stable %v, %q, %v, want a warning only", l.Stable, l.Warnings, err)
		}
		settings.Plan.Async = false
		if r, err = measured(t, settings, &fakeServer{latency: restless()}, nil); err != nil || r.Levels[0].Stable {
			t.Errorf("not async: got stable %v, %v, want not", r.Levels[0].Stable, err)
		}
	})
}

func TestRunEndsItsRangeAtTheLatencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{}
		server.latency = func(int) time.Duration { return time.Duration(server.inFlight) * 2 * time.Millisecond }
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: Range{1, 8, 1, false}, Plan: result.Plan{LatencyLimit: 5 * time.Millisecond}}, server, nil)
		if err != nil || len(r.Levels) != 3 || len(r.Reported()) != 2 || !r.Levels[2].OverLimit {
			t.Errorf("got %d levels, %d reported, %v, want 3, the last over the limit", len(r.Levels), len(r.Reported()), err)
		}
	})
}

func TestRunSendsExactlyTheRequestsAskedFor(t *testing.T) {
	for name, s := range map[string]Settings{
		"closed": {Mode: result.Concurrency, Range: single(3)},
		"open":   {Mode: result.RequestRate, Distribution: result.Poisson, Range: single(100)},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakeServer{latency: always(7 * time.Millisecond)}
			s.Plan = result.Plan{Mode: result.RequestCount, RequestCount: 50, Warmup: 5}
			r, err := measured(t, s, server, nil)
			w := r.Levels[0].Merged
			if err != nil || w.Requests != 50 || server.n != 55 || !r.Levels[0].Stable {
				t.Errorf("%s: got %d of %d requests, %v, want 50 after a warm-up of 5", name, w.Requests, server.n, err)
			}
			if name == "closed" && w.Duration != 17*7*time.Millisecond {
				t.Errorf("got %v from first to last, want 17 rounds of 7ms", w.Duration)
			}
		})
	}
}

func TestCountWindowsHaveTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(1), Plan: result.Plan{Mode: result.CountWindows, WindowCount: 30}},
			&fakeServer{latency: always(100 * time.Millisecond)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range r.Levels[0].Windows {
			if w.Requests < 30 || w.Requests > 31 {
				t.Errorf("got a window of %d requests in %v, want 30", w.Requests, w.Duration)
			}
		}
	})
}
