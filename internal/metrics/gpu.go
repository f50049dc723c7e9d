package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"shoal/internal/backend/cuda"
)

// gpuFamilies are Triton's metrics of GPUs, with where their values are.
var gpuFamilies = []struct {
	*family
	value func(cuda.Usage) float64
}{
	{newFamily("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", gauge), func(u cuda.Usage) float64 { return u.Utilization }},
	{newFamily("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", gauge), func(u cuda.Usage) float64 { return u.Total }},
	{newFamily("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", gauge), func(u cuda.Usage) float64 { return u.Used }},
	{newFamily("nv_gpu_power_usage", "GPU power usage in watts", gauge), func(u cuda.Usage) float64 { return u.Power }},
	{newFamily("nv_gpu_power_limit", "GPU power management limit in watts", gauge), func(u cuda.Usage) float64 { return u.PowerLimit }},
	{newFamily("nv_energy_consumption", "GPU energy consumption in joules since the Triton Server started", counter), func(u cuda.Usage) float64 { return u.Energy }},
}

// A gpuCollector has metrics of the machine's GPUs, as of the last read.
type gpuCollector struct {
	usages func() ([]cuda.Usage, error)
	first  map[string]float64 // the energy of each GPU when the server started

	mu   sync.Mutex // protects the fields below
	last []cuda.Usage
}

// startGPUs returns the collector, nil where there are no GPUs.
func startGPUs(usages func() ([]cuda.Usage, error)) *gpuCollector {
	list, err := usages()
	if err != nil || len(list) == 0 {
		return nil
	}
	c := &gpuCollector{usages: usages, first: make(map[string]float64)}
	for _, u := range list {
		c.first[u.UUID] = u.Energy
	}
	c.keep(list)
	return c
}

// read refreshes the metrics.
func (c *gpuCollector) read() {
	if list, err := c.usages(); err == nil { // otherwise they stay as they were
		c.keep(list)
	}
}

func (c *gpuCollector) keep(list []cuda.Usage) {
	for i := range list {
		if list[i].Energy >= 0 {
			list[i].Energy = max(0, list[i].Energy-c.first[list[i].UUID])
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = list
}

// Describe implements prometheus.Collector.
func (c *gpuCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range gpuFamilies {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *gpuCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.last {
		labels := []*dto.LabelPair{label("gpu_uuid", u.UUID)}
		for _, f := range gpuFamilies {
			if v := f.value(u); v >= 0 {
				ch <- &series{family: f.family, labels: labels, value: v}
			}
		}
	}
}
