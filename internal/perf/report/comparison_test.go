package report

import (
	"encoding/json"
	"strings"
	"testing"

	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
)

func TestComparePrintsRatiosAndSaysWhatItCannotKnow(t *testing.T) {
	a, b := oneLevel(4, 1000, 4e6, 0.01), oneLevel(4, 900, 4.4e6, 0.01)
	a.Levels = append(a.Levels, oneLevel(8, 1500, 5e6, 0.01).Levels...)
	b.Target.Model = "other"
	d, err := judge.Compare(judge.Side{Names: []string{"a.json"}, Results: []*result.Result{a}}, judge.Side{Names: []string{"b.json"}, Results: []*result.Result{b}}, 0.03)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := WriteComparison(&text, d); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Request concurrency: 4: slower\n", "    throughput  1000/s  900/s  0.900  0.866 to 0.935  slower\n", "mean", "4.4ms  1.100",
		"note: the models differ:", "note: measured on the first side alone: concurrency 8", "note: with one run a side", "verdict: slower (0.900 times as fast, 99% interval",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%s, want %q in it", &text, want)
		}
	}
	data, err := json.Marshal(d)
	if err != nil || !strings.Contains(string(data), `"verdict":"slower"`) {
		t.Errorf("got %s, %v, want the verdict in JSON", data, err)
	}
	if _, err := judge.Compare(judge.Side{Names: []string{"a"}, Results: []*result.Result{oneLevel(1, 1, 1, 1)}}, judge.Side{Names: []string{"b"}, Results: []*result.Result{b}}, 0); err == nil || !strings.Contains(err.Error(), "no level in common") {
		t.Errorf("got %v, want that there is no level in common", err)
	}
}

// oneLevel returns a result with these figures.
func oneLevel(concurrency, throughput, mean, relative float64) *result.Result {
	l := result.Level{Load: result.Load{Mode: result.Concurrency, Value: concurrency}, Merged: &result.Window{Requests: 1}, Stable: true, Figures: []result.Figure{
		{Name: result.FigureThroughput, Value: throughput}, {Name: result.FigureMean, Value: mean}, {Name: "p99", Value: 2 * mean},
	}}
	for i := range l.Figures {
		l.Figures[i].Error, l.Figures[i].Freedom = relative, 20
	}
	return &result.Result{Format: result.Format, Levels: []result.Level{l}}
}
