package measure

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shoal/bench/internal/peer"
	"shoal/internal/load"
)

func TestStatsSinceAnEarlierReading(t *testing.T) {
	parse := func(text string) stats {
		s, err := parseStats([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const line = `{"name":"m","version":"%d","inference_count":%d,"execution_count":%d,"last_inference":%d,"inference_stats":{"queue":{"count":%d,"ns":%d},"compute_infer":{"count":1,"ns":5000}}}`
	before := parse(`{"model_stats":[` + fmt.Sprintf(line, 1, 10, 10, 7_000, 10, 10_000) + `]}`)
	after := parse(`{"model_stats":[` + fmt.Sprintf(line, 1, 40, 15, 7_250, 40, 310_000) + "," + fmt.Sprintf(line, 2, 20, 5, 7_200, 0, 0) + `]}`)
	if batch, queue, infer := after.since(before); batch != 5 || queue != 10 || infer != 5 {
		t.Errorf("got mean batch %v, queue %v us and model %v us, want 5, 10 and 5: 50 rows in 10 executions, 300 us for 30 requests, 5 us for 1", batch, queue, infer)
	}
	if batch, queue, infer := after.since(after); batch != 0 || queue != 0 || infer != 0 {
		t.Errorf("got %v, %v and %v, want 0 when nothing happened", batch, queue, infer)
	}
	if rate := after.rate(before); rate != 200 {
		t.Errorf("got %v rows/s, want 200: 50 rows from the end of a batch to that of another 250 ms later", rate)
	}
	if rate := after.rate(after); rate != 0 {
		t.Errorf("got %v rows/s, want 0 when no batch ended", rate)
	}
	if rate := after.rate(stats{}); rate != 0 {
		t.Errorf("got %v rows/s, want 0 when it is not known when the batch before ended", rate)
	}
	if _, err := parseStats([]byte("<html>")); err == nil {
		t.Error("got no error, want one of an answer that is not JSON")
	}
}

// serve runs a server that answers infer requests with handle and counts them in
// its statistics as batches of two.
func serve(t *testing.T, handle http.HandlerFunc) *peer.Server {
	t.Helper()
	var n, last atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			served := n.Load()
			fmt.Fprintf(w, `{"model_stats":[{"inference_count":%d,"execution_count":%d,"last_inference":%d}]}`, 2*served, served, last.Load())
			return
		}
		n.Add(1)
		last.Store(time.Now().UnixMilli())
		_, _ = io.Copy(io.Discard, r.Body)
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return &peer.Server{Name: "fake", HTTP: s.Listener.Addr().String(), Process: load.Watch(os.Getpid())}
}

func loadOf(s *peer.Server) Load {
	target := load.NewHTTP(s.HTTP, "/v2/models/m/infer", nil, []byte("{}"), nil)
	return Load{Model: "m", Target: target, Callers: 2, Warmup: time.Millisecond, Duration: 50 * time.Millisecond}
}

func TestRunMeasuresLatencyCPUAndMeanBatch(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	got, err := Run(t.Context(), s, loadOf(s))
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests == 0 || got.Throughput <= 0 || got.CPU <= 0 || got.P50 <= 0 || got.P95 < got.P50 || got.P99 < got.P95 || got.MeanBatch != 2 {
		t.Errorf("got %+v, want every figure, in order, and a mean batch of 2", got)
	}
}

func TestRunRefusesARunWithFailures(t *testing.T) {
	var n atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 8 {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "{}")
	})
	l := loadOf(s)
	l.Warmup = 0
	if _, err := Run(t.Context(), s, l); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v, want an error that names the status", err)
	}
}

func TestMediansAreTakenFigureByFigure(t *testing.T) {
	got := Medians([]Sample{{CPU: 1, P95: 30}, {CPU: 3, P95: 10}, {CPU: 2, P95: 20}})
	if got.CPU != 2 || got.P95 != 20 {
		t.Errorf("got %+v, want CPU 2 and P95 20", got)
	}
}
