package result

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/load"
)

func histogramOf(ds ...time.Duration) *load.Histogram {
	h := &load.Histogram{}
	for _, d := range ds {
		h.Record(d)
	}
	return h
}

func TestResultComesBackFromJSONAsItWas(t *testing.T) {
	w := Window{
		Start: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Duration: time.Second, Requests: 3, Rows: 6, Failed: 1,
		Errors: map[string]int64{"http 503": 1}, Latency: histogramOf(time.Millisecond, 2*time.Millisecond, time.Hour),
		SendLag: histogramOf(5, 6), Server: &ServerStats{Version: "1", Success: Counted{3, 400}, Batches: []BatchSize{{2, Counted{3, 7}}}},
	}
	r := &Result{
		Format: Format, Tool: "shoal test", Command: []string{"perf", "-m", "x"}, Target: Target{Model: "x"},
		Levels: []Level{{Load: Load{Mode: RequestRate, Value: 500}, Windows: []Window{w}, Merged: &w, Timeline: []Tick{{At: 1, P50: 2}}}},
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data), string(again)); diff != "" {
		t.Errorf("written, read and written again (-first +second):\n%s", diff)
	}
	if p99 := got.Levels[0].Merged.Latency.Quantile(1); p99 != time.Hour {
		t.Errorf("got a maximum of %v, want 1h", p99)
	}
}

func TestParseResultRefusesWhatIsNotOne(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":               `Throughput: 3`,
		"another format":         `{"format": 99}`,
		"no format":              `{}`,
		"a level without counts": `{"format":1,"levels":[{"merged":{"requests":1}}]}`,
		"a window without":       `{"format":1,"levels":[{"windows":[{"requests":1}]}]}`,
	} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func FuzzParseResult(f *testing.F) {
	f.Add(`{"format":1,"levels":[{"load":{"mode":"concurrency","value":2},"stable":true,"windows":[],"merged":null}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse([]byte(text))
		if err != nil {
			return
		}
		for _, l := range r.Reported() {
			_ = l.Merged.Throughput()
			_ = r.Plan.Judged(l.Merged)
		}
		if _, err := json.Marshal(r); err != nil && !strings.Contains(err.Error(), "year") {
			t.Errorf("a result that was read cannot be written: %v", err)
		}
	})
}
