package judge

import (
	"strings"
	"testing"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/result"
)

func TestGoalsAreHeldAgainstALevel(t *testing.T) {
	w := &result.Window{Latency: &load.Histogram{}, Requests: 98, Rows: 196, Failed: 2, Duration: time.Second}
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
			t.Errorf("%s: got %v with %s, want %v", text, got.Met, got.Shown, met)
		}
	}
}

func TestGoalsThatAreNoneAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                "no < or >",
		"p99":             "no < or >",
		"p99<10":          "not a latency",
		"p99<-1ms":        "not a latency",
		"p100<1ms":        "want p50",
		"pxx<1ms":         "want p50",
		"speed>3":         "want p50",
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
