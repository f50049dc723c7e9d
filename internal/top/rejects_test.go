package top

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const rejectMetrics = `# TYPE shoal_requests_rejected_total counter
shoal_requests_rejected_total{model="",protocol="http",reason="unknown_model",version=""} 10
shoal_requests_rejected_total{model="",protocol="grpc",reason="unknown_model",version=""} 4
shoal_requests_rejected_total{model="m",protocol="http",reason="bad_input",version="1"} 6
shoal_requests_rejected_total{model="m",protocol="grpc",reason="bad_input",version="1"} 2
shoal_requests_rejected_total{model="m",protocol="http",reason="malformed",version="1"} 0
shoal_requests_rejected_total{model="m",protocol="http",reason="unknown_model",version=""} 2
# TYPE shoal_connections_closed_total counter
shoal_connections_closed_total{protocol="http",reason="idle_timeout"} 3
shoal_connections_closed_total{protocol="grpc",reason="idle_timeout"} 1
`

func TestRejectionsAreReadByModelAndReason(t *testing.T) {
	s := sample(2*time.Second, aModel(1, 0, 1, 1), Model{Name: "n", Version: "1"})
	if err := s.readMetrics(header(".txt"), []byte(rejectMetrics)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Rejects{"bad_input": 8, "malformed": 0, "unknown_model": 2}, s.Models[0].Rejected); diff != "" {
		t.Errorf("of the model (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Rejects{"unknown_model": 14}, s.Rejected); diff != "" {
		t.Errorf("of no model (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Rejects{"idle_timeout": 4}, s.Closed); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}

	old := aModel(1, 0, 1, 1)
	old.Rejected = Rejects{"bad_input": 4, "malformed": 0}
	rows := compare("u", sample(0, old, Model{Name: "n", Version: "1"}), s)
	if diff := cmp.Diff(Rejects{"bad_input": 2, "unknown_model": 1}, rows[0].RejectedByReason); diff != "" {
		t.Errorf("in a second (-want +got):\n%s", diff)
	}
	if or(rows[0].Rejected) != 3 || or(rows[0].AllRejected) != 10 {
		t.Errorf("got %v in a second, %v in all, want 3 and 10", or(rows[0].Rejected), or(rows[0].AllRejected))
	}
	if rows[1].Rejected != nil {
		t.Errorf("got %v for a model that has none, want that it is not known", *rows[1].Rejected)
	}
	text, err := json.Marshal(rows[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"rejected_per_second":3`, `"rejected_total":10`, `"rejected_per_second_by_reason":{"bad_input":2,"unknown_model":1}`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want %s in it", text, want)
		}
	}
}

func TestRatesAreListedLargestFirst(t *testing.T) {
	got := Rejects{"a": 1, "b\x1b[2J": 20, "c": 1}.text()
	if want := "b\uFFFD[2J 20.0  a 1.0  c 1.0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if lines := (&Report{}).rejectLines(); lines != nil {
		t.Errorf("got %q of nothing, want no line", lines)
	}
}
