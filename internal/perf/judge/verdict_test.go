package judge

import (
	"testing"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/result"
)

// steady returns a window of a second with so many answers, each of one latency.
func steady(requests int64, latency time.Duration) result.Window {
	w := result.Window{Duration: time.Second, Requests: requests, Rows: requests, Latency: &load.Histogram{}}
	for range min(requests, 100) {
		w.Latency.Record(latency)
	}
	return w
}

func TestJudgeComparesTheLastThreeWindows(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		windows []result.Window
		want    Verdict
	}{
		{"no window", nil, Verdict{Reason: "0 of 3 windows"}},
		{"two that agree are too few", []result.Window{steady(100, ms), steady(100, ms)}, Verdict{Reason: "2 of 3 windows"}},
		{"three that agree", []result.Window{steady(100, ms), steady(105, ms), steady(100, ms)}, Verdict{Stable: true, Throughput: true}},
		{"an early one does not count", []result.Window{steady(10, 9*ms), steady(100, ms), steady(105, ms), steady(100, ms)}, Verdict{Stable: true, Throughput: true}},
		{"exactly at the edge", []result.Window{steady(100, ms), steady(125, ms), steady(100, ms)}, Verdict{Stable: true, Throughput: true}},
		{"throughput differs", []result.Window{steady(100, ms), steady(130, ms), steady(100, ms)}, Verdict{Reason: "throughput spread 30%"}},
		{"latency differs", []result.Window{steady(100, ms), steady(100, 2*ms), steady(100, ms)}, Verdict{Throughput: true, Reason: "latency spread 100%"}},
		{"one without answers", []result.Window{steady(100, ms), steady(0, ms), steady(100, ms)}, Verdict{Reason: "a window without answers"}},
		{"over the limit", []result.Window{steady(100, ms), steady(100, ms), steady(100, 20*ms)}, Verdict{Over: true, Throughput: true, Reason: "latency spread 1.9e+03%"}},
		{"over the limit, too early to say", []result.Window{steady(100, 20*ms)}, Verdict{Reason: "1 of 3 windows"}},
	} {
		p := &result.Plan{Stability: 0.25, LatencyLimit: 10 * ms}
		got := Windows(p, c.windows)
		got.Spread = result.Spread{}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestJudgeLooksAtThePercentileAskedFor(t *testing.T) {
	windows := []result.Window{steady(100, time.Millisecond), steady(100, time.Millisecond), steady(100, time.Millisecond)}
	for range 3 {
		windows[1].Latency.Record(time.Second) // the mean moves, the median does not
	}
	if v := Windows(&result.Plan{Stability: 0.1}, windows); v.Stable {
		t.Error("by the mean: got stable, want not")
	}
	if v := Windows(&result.Plan{Stability: 0.1, Percentile: 50}, windows); !v.Stable {
		t.Error("by the median: got not stable, want stable")
	}
}
