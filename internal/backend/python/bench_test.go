package python

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/race"
	"shoal/internal/tensor"
)

// BenchmarkRoundTrip measures a batch of one request to a worker and back, with
// the processor time of both sides.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name    string
		handler string
		width   int64
	}{{"64B", "touch", 16}, {"602KB", "touch", 150528}, {"64B-identity", "identity", 16}, {"602KB-identity", "identity", 150528}} {
		b.Run(c.name, func(b *testing.B) { benchmarkRoundTrip(b, c.handler, c.width) })
	}
}

func benchmarkRoundTrip(b *testing.B, handler string, width int64) {
	in, run := startForBench(b, handler, width)
	for range 200 {
		run()
	}
	times := make([]time.Duration, 0, 1<<20)
	ours, theirs := cpuOf(b, 0), cpuOf(b, in.pid())
	for b.Loop() {
		begin := time.Now()
		run()
		times = append(times, time.Since(begin))
	}
	ours, theirs = cpuOf(b, 0)-ours, cpuOf(b, in.pid())-theirs
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/1e3, "p50-us")
	b.ReportMetric(float64(times[len(times)*99/100])/1e3, "p99-us")
	b.ReportMetric(float64(ours)/1e3/float64(len(times)), "server-cpu-us")
	b.ReportMetric(float64(theirs)/1e3/float64(len(times)), "worker-cpu-us")
}

// startForBench returns an instance and a function that runs one request on it.
func startForBench(b testing.TB, handler string, width int64) (*instance, func()) {
	cfg := &modelpb.ModelConfig{
		Name: "bench", MaxBatchSize: 8,
		Input:  []*modelpb.ModelInput{{Name: "INPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{width}}},
		Output: []*modelpb.ModelOutput{{Name: "OUTPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{-1}}},
	}
	in := startInstance(b, newBackend(b, Options{}), handler, cfg)
	data := make([]byte, 4*width)
	batch := &infer.Batch{Rows: 1, Requests: make([]*infer.Request, 1)}
	shape := tensor.Shape{1, width}
	return in, func() {
		r := infer.NewRequest()
		r.Rows = 1
		input := r.AddInput()
		input.Name, input.Type, input.Shape, input.Data.First = "INPUT0", tensor.FP32, shape, data
		batch.Requests[0] = r
		if err := in.Run(batch); err != nil {
			b.Fatal(err)
		}
		if r.Err != nil {
			b.Fatal(r.Err)
		}
		r.Release()
	}
}

// cpuOf returns the processor time of a process, of our own for 0.
func cpuOf(b testing.TB, pid int) time.Duration {
	if pid == 0 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return childCPU(b, pid)
}

func TestRoundTripAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	_, run := startForBench(t, "touch", 16)
	for range 100 {
		run()
	}
	if got := testing.AllocsPerRun(500, run); got != 0 {
		t.Errorf("got %v allocations per batch, want 0", got)
	}
}
