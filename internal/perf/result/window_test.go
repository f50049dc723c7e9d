package result

import (
	"fmt"
	"math"
	"testing"
	"time"

	"shoal/internal/load"
)

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
	m := Merge([]Window{a, b})
	if m.Duration != 2*time.Second || m.Requests != 30 || m.Throughput() != 15 || m.Latency.Count() != 30 || m.MaxInFlight != 7 || m.SendLag.Count() != 1 {
		t.Errorf("got %+v, want both windows together", m)
	}
	if m.Failed != 4 || m.Errors["x"] != 2 || m.Errors["y"] != 2 || len(a.Errors) != 1 {
		t.Errorf("got %d errors, %v, want 4 by cause and the windows as they were", m.Failed, m.Errors)
	}
	if s := m.Server; s.MeanBatch() != 3 || s.Queue.Mean() != 10 || fmt.Sprint(s.Batches) != "[{1 {1 1}} {3 {1 4}} {5 {2 3}}]" {
		t.Errorf("got %+v, want the server's counts added", s)
	}
	if Merge(nil) != nil {
		t.Error("of nothing: got a window, want none")
	}
}

func TestErrorsOfManyTextsDoNotFillTheMemory(t *testing.T) {
	var w Window
	for i := range 1000 {
		w.CountError(fmt.Sprint("error ", i), 1)
	}
	if len(w.Errors) != maxCauses+1 || w.Errors[otherCause] != 1000-maxCauses {
		t.Errorf("got %d causes, %d others, want %d and the rest together", len(w.Errors), w.Errors[otherCause], maxCauses)
	}
}

// steady returns a window of a second with so many answers, each of one latency.
func steady(requests int64, latency time.Duration) Window {
	w := Window{Duration: time.Second, Requests: requests, Rows: requests, Latency: &load.Histogram{}}
	for range min(requests, 100) {
		w.Latency.Record(latency)
	}
	return w
}
