package perf

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/judge"
	"shoal/internal/perf/report"
	"shoal/internal/perf/result"
)

// oneByOne returns the latencies of a server that takes cost for each request,
// one after the other.
func oneByOne(cost time.Duration) func(int) time.Duration {
	free := time.Now()
	return func(int) time.Duration {
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		free = free.Add(cost)
		return free.Sub(now)
	}
}

func goalsOf(t *testing.T, text string) []judge.Goal {
	t.Helper()
	goals, err := judge.ParseGoals(text)
	if err != nil {
		t.Fatal(err)
	}
	return goals
}

func TestFindCapacityFindsTheHighestRate(t *testing.T) {
	for name, c := range map[string]struct {
		levels Range
		want   float64
	}{
		"from what one caller gets": {Range{Single: true}, 500},
		"from far below":            {Range{Start: 60, End: 60, Single: true}, 500},
		"from above":                {Range{Start: 3000, End: 3000, Single: true}, 500},
		"no higher than it may":     {Range{Start: 50, End: 200}, 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			s := Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: c.levels, Capacity: goalsOf(t, "p99<20ms")}
			r, err := measured(t, s, &fakeServer{latency: oneByOne(2 * time.Millisecond)}, nil)
			if err != nil || math.Abs(r.Capacity.Rate/c.want-1) > 0.05 || time.Since(start) > 40*time.Second {
				t.Fatalf("%s: got %+v after %v, %v, want about %v within 40s", name, r.Capacity, time.Since(start), err, c.want)
			}
			if len(r.Levels) != 1 || r.Levels[0].Load.Value != r.Capacity.Rate || r.Levels[0].Merged.Latency.Quantile(0.99) >= 20*time.Millisecond {
				t.Errorf("%s: got %d levels, want the one that was found", name, len(r.Levels))
			}
			var text strings.Builder
			report := &report.Report{Out: &text, Err: &text, Plan: &r.Plan, Target: &r.Target, Host: r.Host}
			report.Probe(r.Capacity.Probes[0])
			report.Summary(r)
			if !strings.Contains(text.String(), "| capacity: "+result.Number(r.Capacity.Rate)+" requests/s with p99<20ms; ") || !strings.HasPrefix(text.String(), "| probe: ") {
				t.Errorf("%s: got the report\n%s", name, &text)
			}
		})
	}
}

func TestFindCapacityIsNotFooledByAHiccup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := oneByOne(2 * time.Millisecond)
		n := 0
		server := &fakeServer{latency: func(i int) time.Duration {
			if n++; n > 150 && n < 170 { // in the first probe, and never again
				return 25 * time.Millisecond
			}
			return served(i)
		}}
		r, err := measured(t, Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: single(400), Capacity: goalsOf(t, "p99<20ms")}, server, nil)
		if err != nil || math.Abs(r.Capacity.Rate/500-1) > 0.05 || r.Capacity.Probes[0].Passed || !r.Capacity.Probes[1].Passed {
			t.Errorf("got %+v, %v, want that the first rate was tried again", r.Capacity, err)
		}
	})
}

func TestFindCapacitySaysThatThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: single(100), Capacity: goalsOf(t, "p99<2ms")}
		r, err := measured(t, s, &fakeServer{latency: always(5 * time.Millisecond)}, nil)
		if !errors.Is(err, ErrNoCapacity) || r.Capacity.Rate != 0 || len(r.Capacity.Probes) == 0 {
			t.Errorf("got %+v, %v, want none", r.Capacity, err)
		}
	})
}

func TestFindCapacityEndsWithTheServersWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := &fakeServer{latency: always(time.Millisecond), fail: func(int) error {
			return &load.StatusError{Code: 400, Body: []byte(`{"error":"unexpected shape for input 'A'"}`)}
		}}
		s := Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: Range{Single: true}, Capacity: goalsOf(t, "p99<2ms")}
		_, err := measured(t, s, server, nil)
		if err == nil || !strings.Contains(err.Error(), "unexpected shape for input 'A'") || time.Since(start) > time.Second {
			t.Errorf("got %v after %v, want the server's words at once", err, time.Since(start))
		}
	})
}

func TestFindCapacityEndsWhenTheServerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := &fakeServer{latency: always(time.Millisecond), fail: func(int) error {
			if time.Since(start) > 4*time.Second {
				return errors.New("connection refused")
			}
			return nil
		}}
		s := Settings{Mode: result.RequestRate, Distribution: result.Constant, Range: single(100), Capacity: goalsOf(t, "p99<20ms")}
		r, err := measured(t, s, server, nil)
		if err == nil || !strings.Contains(err.Error(), "refused") || time.Since(start) > 10*time.Second || len(r.Capacity.Probes) < 2 {
			t.Errorf("got %v after %v with %d probes, want an end soon", err, time.Since(start), len(r.Capacity.Probes))
		}
	})
}
