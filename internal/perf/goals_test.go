package perf

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/judge"
	"shoal/internal/perf/report"
	"shoal/internal/perf/result"
)

func TestReportSaysWhichGoalsWereReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goals, err := judge.ParseGoals("p99<11ms,throughput>5000,error<0.1%")
		if err != nil {
			t.Fatal(err)
		}
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(1), Goals: goals}, &fakeServer{latency: always(10 * time.Millisecond)}, nil)
		if err != nil || r.GoalsMet() {
			t.Fatalf("got goals met %v, %v, want one missed", r.GoalsMet(), err)
		}
		var text strings.Builder
		(&report.Report{Out: &text, Err: &text, Plan: &r.Plan, Target: &r.Target, Host: r.Host}).End(&r.Levels[0])
		for _, want := range []string{"    | SLO p99<11ms: pass (10ms)\n", "    | SLO throughput>5000: FAIL (", "    | SLO error<0.1%: pass (0%)\n"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("got\n%s, want %q in it", &text, want)
			}
		}
	})
}

func TestRunEndsWhenMoreFailThanMay(t *testing.T) {
	for name, c := range map[string]struct {
		every int // requests of which one fails
		limit float64
		ends  bool
	}{
		"one in a hundred and one percent may": {100, 0.01, false},
		"one in twenty and one percent may":    {20, 0.01, true},
		"one in twenty and ten percent may":    {20, 0.1, false},
		"one in two and a quarter may":         {2, 0.25, true},
		"nearly all and all may":               {1, 1, true}, // not one answer
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakeServer{latency: always(time.Millisecond), fail: func(n int) error {
				if n%c.every == 0 {
					return &load.StatusError{Code: 503, Body: []byte(`{"error":"queue is full"}`)}
				}
				return nil
			}}
			r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(2), Plan: result.Plan{MaxErrors: c.limit}}, server, nil)
			if (err != nil) != c.ends {
				t.Errorf("%s: got %v, want an end: %v", name, err, c.ends)
			}
			if c.ends && (r.Cut == "" || !strings.Contains(err.Error(), "queue is full")) {
				t.Errorf("%s: got %v, want the server's words", name, err)
			}
		})
	}
}
