package metrics

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
	"shoal/internal/engine"
)

// stopped is a source without models.
type stopped struct{}

func (stopped) Statistics(string, int64) ([]engine.Statistics, error) { return nil, nil }

func TestMetricsOfGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var energy atomic.Int64 // the metrics' goroutine reads it
		energy.Store(1000)
		usages := func() ([]cuda.Usage, error) {
			return []cuda.Usage{{UUID: "GPU-1", Utilization: 0.25, Total: 1000, Used: 10, Power: 70.5, PowerLimit: -1, Energy: float64(energy.Load())}}, nil
		}
		m := Start(Options{GPUs: usages, Interval: time.Second, Log: slog.New(slog.DiscardHandler)}, stopped{})
		defer m.Close()
		energy.Store(1500)
		time.Sleep(time.Second)
		synctest.Wait()
		for name, want := range map[string][]string{
			"nv_gpu_utilization":        {`nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25`},
			"nv_gpu_memory_total_bytes": {`nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 1000`},
			"nv_gpu_memory_used_bytes":  {`nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 10`},
			"nv_gpu_power_usage":        {`nv_gpu_power_usage{gpu_uuid="GPU-1"} 70.5`},
			"nv_gpu_power_limit":        nil, // this GPU has none
			"nv_energy_consumption":     {`nv_energy_consumption{gpu_uuid="GPU-1"} 500`},
		} {
			if diff := cmp.Diff(want, scrape(t, m, name)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestWithoutGPUsThereAreNoMetricsOfThem(t *testing.T) {
	m := Start(Options{GPUs: func() ([]cuda.Usage, error) { return nil, errors.New("no library") }, Log: slog.New(slog.DiscardHandler)}, stopped{})
	defer m.Close()
	if got := scrape(t, m, "nv_gpu_utilization"); got != nil {
		t.Errorf("got %v, want none", got)
	}
}

func TestCountersOfAModelOnOneGPUNameIt(t *testing.T) {
	one, two, none := idle("one", 1), idle("two", 1), idle("none", 1)
	one.GPUs = []backend.GPUUse{{ID: 0, UUID: "GPU-a", Bytes: 5000}}
	two.GPUs = []backend.GPUUse{{ID: 0, UUID: "GPU-a", Bytes: 10}, {ID: 1, UUID: "GPU-b", Bytes: 20}}
	addr := serve(t, &fixed{[]engine.Statistics{none, one, two}})
	for prefix, want := range map[string][]string{
		"nv_inference_count": {
			`nv_inference_count{gpu_uuid="GPU-a",model="one",version="1"} 0`,
			`nv_inference_count{model="none",version="1"} 0`, `nv_inference_count{model="two",version="1"} 0`,
		},
		"nv_inference_pending_request_count": {`nv_inference_pending_request_count{model="one",version="1"} 0`},
		"shoal_model_gpu_memory_bytes": {
			`shoal_model_gpu_memory_bytes{gpu_uuid="GPU-a",model="one",version="1"} 5000`,
			`shoal_model_gpu_memory_bytes{gpu_uuid="GPU-a",model="two",version="1"} 10`,
			`shoal_model_gpu_memory_bytes{gpu_uuid="GPU-b",model="two",version="1"} 20`,
		},
	} {
		lines := scrape(t, addr, prefix)
		for _, w := range want {
			if !slices.Contains(lines, w) {
				t.Errorf("got %v, want %s among them", lines, w)
			}
		}
	}
}
