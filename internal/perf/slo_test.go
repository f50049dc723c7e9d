package perf

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/load"
)

func TestGoalsAreHeldAgainstALevel(t *testing.T) {
	w := &Window{Latency: &load.Histogram{}, Requests: 98, Rows: 196, Failed: 2, Duration: time.Second}
	for i := range 98 {
		w.Latency.Record(time.Duration(i+1) * time.Millisecond)
	}
	for text, met := range map[string]bool{
		"p99<99ms": true, "p99<97ms": false, "p99<=98ms": true, "p50<50ms": true, "p99.9 < 1s": true,
		"mean<50ms": true, "avg<49ms": false, "max<98ms": false, "max<=98ms": true,
		"throughput>190": true, "throughput>200": false, "rate>90": true, "rate>99": false,
		"error<3%": true, "error<2%": false, "errors<=0.02": true, "p50>1ms": true,
	} {
		goals, err := ParseGoals(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := goals[0].check(w); got.Met != met {
			t.Errorf("%s: got %v with %s, want %v", text, got.Met, got.shown, met)
		}
	}
}

func TestGoalsThatAreNoneAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                "no < or >",
		"p99":             "no < or >",
		"p99<10":          "not a latency",
		"p99<-1ms":        "not a latency",
		"p100<1ms":        "none of p50",
		"pxx<1ms":         "none of p50",
		"speed>3":         "none of p50",
		"error<200%":      "at most 100%",
		"error<x":         "not a share",
		"throughput>fast": "not a number a second",
		"p99<10ms,":       "no < or >",
		"throughput>+Inf": "not a number a second",
	} {
		if _, err := ParseGoals(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzParseGoals(f *testing.F) {
	f.Add("p99<10ms,error<0.1%,throughput>500")
	f.Add("p99.9<=1h, mean > 3us")
	f.Fuzz(func(t *testing.T, text string) {
		goals, err := ParseGoals(text)
		if err != nil {
			return
		}
		for _, g := range goals {
			g.check(nil)
			again, err := ParseGoals(g.String())
			if err != nil || again[0] != g {
				t.Errorf("%q: got %v, %v, want the same goal again", g, again, err)
			}
		}
	})
}

func TestReportSaysWhichGoalsWereReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goals, err := ParseGoals("p99<11ms,throughput>5000,error<0.1%")
		if err != nil {
			t.Fatal(err)
		}
		r, err := measured(t, Settings{Mode: Concurrency, Range: single(1), Goals: goals}, &fakeServer{latency: always(10 * time.Millisecond)}, nil)
		if err != nil || r.GoalsMet() {
			t.Fatalf("got goals met %v, %v, want one missed", r.GoalsMet(), err)
		}
		var text strings.Builder
		(&Report{Out: &text, Err: &text, Plan: &r.Plan, Target: &r.Target, Host: r.Host}).End(&r.Levels[0])
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
			r, err := measured(t, Settings{Mode: Concurrency, Range: single(2), Plan: Plan{MaxErrors: c.limit}}, server, nil)
			if (err != nil) != c.ends {
				t.Errorf("%s: got %v, want an end: %v", name, err, c.ends)
			}
			if c.ends && (r.Cut == "" || !strings.Contains(err.Error(), "queue is full")) {
				t.Errorf("%s: got %v, want the server's words", name, err)
			}
		})
	}
}
