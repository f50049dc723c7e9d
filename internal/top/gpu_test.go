package top

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGPUsAreListedWithWhatIsKnownOfThem(t *testing.T) {
	s := &Sample{}
	text := `# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-bbbbbbbb-1"} 0.5
nv_gpu_utilization{gpu_uuid="GPU-aaaaaaaa-1"} 0.871
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-aaaaaaaa-1"} 12.34e9
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-aaaaaaaa-1"} 150e9
# TYPE nv_gpu_power_usage gauge
nv_gpu_power_usage{gpu_uuid="GPU-aaaaaaaa-1"} 412.4
`
	if err := s.readMetrics(http.Header{"Content-Type": {"text/plain; version=0.0.4"}}, []byte(text)); err != nil {
		t.Fatal(err)
	}
	r := &Report{Servers: []Server{{GPUs: s.GPUs}}}
	want := []string{"GPU aaaaaaaa   87% busy  12.3 of 150.0 GB used  412 W", "GPU bbbbbbbb   50% busy"}
	if diff := cmp.Diff(want, r.gpuLines()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lines := (&Report{}).extraLines(); lines != nil {
		t.Errorf("got %q of nothing, want no line", lines)
	}
}
