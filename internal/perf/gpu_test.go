package perf

import (
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const gpuText = `# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-a"} 0.25
nv_gpu_utilization{gpu_uuid="GPU-b"} 0.5
# TYPE nv_gpu_power_usage gauge
nv_gpu_power_usage{gpu_uuid="GPU-a"} 100
nv_gpu_memory_used_bytes{gpu_uuid="GPU-a"} 5
# TYPE nv_inference_count counter
nv_inference_count{model="m",version="1"} 3
`

func TestGPUMetricsAreReadByGPU(t *testing.T) {
	got, err := parseGPU(strings.NewReader(gpuText))
	want := map[string]map[string]float64{
		gpuUtilization: {"GPU-a": 0.25, "GPU-b": 0.5}, gpuPower: {"GPU-a": 100}, gpuUsed: {"GPU-a": 5},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := parseGPU(strings.NewReader("{}{")); err == nil {
		t.Error("what is no metrics text: got no error, want one")
	}
}

func TestGPUMetricsAreFoldedByTheirKind(t *testing.T) {
	sample := func(v float64) map[string]map[string]float64 {
		return map[string]map[string]float64{gpuUtilization: {"a": v}, gpuPower: {"a": v}, gpuUsed: {"a": v}, gpuTotal: {"a": 9}}
	}
	m := foldGPU([]map[string]map[string]float64{sample(1), sample(5), sample(3)})
	if m.Utilization["a"] != 3 || m.Power["a"] != 3 || m.MemoryUsed["a"] != 5 || m.MemoryTotal["a"] != 9 {
		t.Errorf("got %+v, want means, the most memory, the total", m)
	}
	both := m.Merged(foldGPU([]map[string]map[string]float64{sample(9)}))
	if both.Utilization["a"] != 6 || both.MemoryUsed["a"] != 9 || m.MemoryUsed["a"] != 5 {
		t.Errorf("got %+v, want both stretches", both)
	}
	if empty := foldGPU(nil).Merged(m); empty.Power["a"] != 3 {
		t.Errorf("with nothing: got %+v, want what there was", empty)
	}
}

func TestPollerReadsAgainAndAgainAndSaysWhatIsMissing(t *testing.T) {
	var asked atomic.Int64
	thrice := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 3 {
			close(thrice)
		}
		io.WriteString(w, gpuText)
	}))
	defer s.Close()
	g := startGPU(s.URL, time.Millisecond)
	<-thrice
	g.close()
	if m := g.take(); m.Power["GPU-a"] != 100 {
		t.Errorf("got %+v, want what the server says", m)
	}
	if got := g.warnings(); len(got) != 1 || got[0] != "Unable to parse 'nv_gpu_memory_total_bytes' metric." {
		t.Errorf("got %q, want one about the total", got)
	}
}

func TestPollerSaysThatNothingCanBeRead(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	g := &gpuPoller{url: s.URL, http: s.Client(), missing: map[string]bool{}}
	g.poll(t.Context())
	if got := g.warnings(); len(got) != 1 || !strings.Contains(got[0], "404") || !strings.Contains(got[0], "--metrics-url") {
		t.Errorf("got %q, want one that names the flag", got)
	}
}

func TestMetricsURLIsGuessedFromTheServers(t *testing.T) {
	for _, c := range [][3]string{
		{"", "localhost:8000", "http://localhost:8002/metrics"},
		{"", "[::1]:8000", "http://[::1]:8002/metrics"},
		{"h:1/m", "localhost:8000", "http://h:1/m"},
		{"https://h/m", "localhost:8000", "https://h/m"},
	} {
		if got := MetricsURL(c[0], c[1]); got != c[2] {
			t.Errorf("%q, %q: got %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
