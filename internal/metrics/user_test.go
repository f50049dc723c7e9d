package metrics

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"shoal/internal/usermetric"
)

func TestModelsOwnMetricsAreShown(t *testing.T) {
	var r usermetric.Registry
	for _, op := range []usermetric.Op{
		{Act: usermetric.Increment, Family: "seen", Kind: usermetric.Counter, Help: "How\nmany", Labels: map[string]string{"a": `"b"`, "A": ""}, Value: 2},
		{Act: usermetric.Set, Family: "vllm:level", Kind: usermetric.Gauge, Value: -0.5},
		{Act: usermetric.Observe, Family: "size", Kind: usermetric.Histogram, Buckets: []float64{0.5, 1}, Value: 0.7},
	} {
		if _, err := r.Apply(op); err != nil {
			t.Fatal(err)
		}
	}
	m := Start(Options{User: &r, Log: slog.New(slog.DiscardHandler)}, &fixed{})
	defer m.Close()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		"# HELP seen How\\nmany\n# TYPE seen counter\nseen{A=\"\",a=\"\\\"b\\\"\"} 2\n",
		"# TYPE vllm:level gauge\nvllm:level -0.5\n",
		"# TYPE size histogram\nsize_bucket{le=\"0.5\"} 0\nsize_bucket{le=\"1\"} 1\nsize_bucket{le=\"+Inf\"} 1\nsize_sum 0.7\nsize_count 1\n",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("got\n%s\nwant it to have\n%s", w.Body, want)
		}
	}
}
