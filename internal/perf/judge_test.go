package perf

import (
	"fmt"
	"math"
	"testing"
	"time"

	"shoal/internal/load"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// steady returns a window of a second with so many answers, each of one latency.
func steady(requests int64, latency time.Duration) Window {
	w := Window{Duration: time.Second, Requests: requests, Rows: requests, Latency: &load.Histogram{}}
	for range min(requests, 100) {
		w.Latency.Record(latency)
	}
	return w
}

func TestJudgeComparesTheLastThreeWindows(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		windows []Window
		want    verdict
	}{
		{"no window", nil, verdict{reason: "0 of 3 windows"}},
		{"two that agree are too few", []Window{steady(100, ms), steady(100, ms)}, verdict{reason: "2 of 3 windows"}},
		{"three that agree", []Window{steady(100, ms), steady(105, ms), steady(100, ms)}, verdict{stable: true, throughput: true}},
		{"an early one does not count", []Window{steady(10, 9*ms), steady(100, ms), steady(105, ms), steady(100, ms)}, verdict{stable: true, throughput: true}},
		{"exactly at the edge", []Window{steady(100, ms), steady(125, ms), steady(100, ms)}, verdict{stable: true, throughput: true}},
		{"throughput differs", []Window{steady(100, ms), steady(130, ms), steady(100, ms)}, verdict{reason: "throughput spread 30%"}},
		{"latency differs", []Window{steady(100, ms), steady(100, 2*ms), steady(100, ms)}, verdict{throughput: true, reason: "latency spread 100%"}},
		{"one without answers", []Window{steady(100, ms), steady(0, ms), steady(100, ms)}, verdict{reason: "a window without answers"}},
		{"over the limit", []Window{steady(100, ms), steady(100, ms), steady(100, 20*ms)}, verdict{over: true, throughput: true, reason: "latency spread 1.9e+03%"}},
		{"over the limit, too early to say", []Window{steady(100, 20*ms)}, verdict{reason: "1 of 3 windows"}},
	} {
		p := &Plan{Stability: 0.25, LatencyLimit: 10 * ms}
		got := judge(p, c.windows)
		got.spread = Spread{}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestJudgeLooksAtThePercentileAskedFor(t *testing.T) {
	windows := []Window{steady(100, time.Millisecond), steady(100, time.Millisecond), steady(100, time.Millisecond)}
	for range 3 {
		windows[1].Latency.Record(time.Second) // the mean moves, the median does not
	}
	if v := judge(&Plan{Stability: 0.1}, windows); v.stable {
		t.Error("by the mean: got stable, want not")
	}
	if v := judge(&Plan{Stability: 0.1, Percentile: 50}, windows); !v.stable {
		t.Error("by the median: got not stable, want stable")
	}
}

func TestSpreadCanBeWrittenDown(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{0, 0}, 0}, {[]float64{2, 3}, 0.5}, {[]float64{0, 1}, math.MaxFloat64}} {
		if got := spread(c.values); got != c.want {
			t.Errorf("%v: got %v, want %v", c.values, got, c.want)
		}
	}
}

func TestMergeAddsWindowsUp(t *testing.T) {
	a, b := steady(10, time.Millisecond), steady(20, 3*time.Millisecond)
	a.Failed, a.Errors = 1, map[string]int64{"x": 1}
	b.Failed, b.Errors = 3, map[string]int64{"x": 1, "y": 2}
	a.MaxInFlight, b.MaxInFlight = 7, 4
	a.SendLag = histogramOf(5)
	a.Server = &ServerStats{Version: "1", Executions: 2, Inferences: 6, Queue: Counted{2, 10}, Batches: []BatchSize{{1, Counted{1, 1}}, {5, Counted{1, 2}}}}
	b.Server = &ServerStats{Version: "1", Executions: 1, Inferences: 3, Queue: Counted{1, 20}, Batches: []BatchSize{{3, Counted{1, 4}}, {5, Counted{1, 1}}}}
	m := merge([]Window{a, b})
	if m.Duration != 2*time.Second || m.Requests != 30 || m.Throughput() != 15 || m.Latency.Count() != 30 || m.MaxInFlight != 7 || m.SendLag.Count() != 1 {
		t.Errorf("got %+v, want both windows together", m)
	}
	if m.Failed != 4 || m.Errors["x"] != 2 || m.Errors["y"] != 2 || len(a.Errors) != 1 {
		t.Errorf("got %d errors, %v, want 4 by cause and the windows as they were", m.Failed, m.Errors)
	}
	if s := m.Server; s.MeanBatch() != 3 || s.Queue.Mean() != 10 || fmt.Sprint(s.Batches) != "[{1 {1 1}} {3 {1 4}} {5 {2 3}}]" {
		t.Errorf("got %+v, want the server's counts added", s)
	}
	if merge(nil) != nil {
		t.Error("of nothing: got a window, want none")
	}
}

func TestErrorsOfManyTextsDoNotFillTheMemory(t *testing.T) {
	var w Window
	for i := range 1000 {
		w.countError(fmt.Sprint("error ", i), 1)
	}
	if len(w.Errors) != maxCauses+1 || w.Errors[otherCause] != 1000-maxCauses {
		t.Errorf("got %d causes, %d others, want %d and the rest together", len(w.Errors), w.Errors[otherCause], maxCauses)
	}
}

func stat(version string, n, ns uint64) *pb.ModelStatistics {
	d := &pb.StatisticDuration{Count: n, Ns: ns}
	return &pb.ModelStatistics{Version: version, InferenceCount: 2 * n, ExecutionCount: n, InferenceStats: &pb.InferStatistics{Success: d, Queue: d}}
}

func TestStatisticsAreTakenOfTheVersionThatWasUsed(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after []*pb.ModelStatistics
		want          string
	}{
		{"one version", []*pb.ModelStatistics{stat("1", 5, 100)}, []*pb.ModelStatistics{stat("1", 8, 160)}, "1 3 60 6 false"},
		{"one of two", []*pb.ModelStatistics{stat("1", 5, 100), stat("2", 5, 100)}, []*pb.ModelStatistics{stat("1", 8, 160), stat("2", 5, 100)}, "1 3 60 6 false"},
		{"the newest of two, by number", []*pb.ModelStatistics{stat("9", 5, 100), stat("10", 5, 100)}, []*pb.ModelStatistics{stat("9", 8, 160), stat("10", 6, 110)}, "10 1 10 2 true"},
		{"new since then", nil, []*pb.ModelStatistics{stat("1", 8, 160)}, "1 8 160 16 false"},
		{"a server that was started again", []*pb.ModelStatistics{stat("1", 50, 1000)}, []*pb.ModelStatistics{stat("1", 8, 160)}, "1 8 160 16 false"},
	} {
		s := diffStats(c.before, c.after)
		if got := fmt.Sprintf("%s %d %d %d %v", s.Version, s.Success.Count, s.Success.Ns, s.Inferences, s.MixedVersion); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	if s := diffStats([]*pb.ModelStatistics{stat("1", 5, 100)}, []*pb.ModelStatistics{stat("1", 5, 100)}); s != nil {
		t.Errorf("nothing used: got %+v, want none", s)
	}
}
