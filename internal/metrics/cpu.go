package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	cpuUse      = newFamily("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", gauge)
	memoryTotal = newFamily("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", gauge)
	memoryUsed  = newFamily("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", gauge)
)

// A machineState is the system's account of the whole machine.
type machineState struct {
	busy, total     float64 // processor time since it started, in seconds
	memory, memused float64 // in bytes
}

// use returns the share of the time since old that the processors were busy.
func (s machineState) use(old machineState) float64 {
	if s.total <= old.total {
		return 0
	}
	return max(0, s.busy-old.busy) / (s.total - old.total)
}

// A cpuCollector has gauges of the machine, as of the last read.
type cpuCollector struct {
	state func() (machineState, error)

	mu   sync.Mutex // protects the fields below
	last machineState
	use  float64
}

// newCPU returns the collector, nil where the system does not support it.
func newCPU() *cpuCollector { return startCPU(machine) }

func startCPU(state func() (machineState, error)) *cpuCollector {
	first, err := state()
	if err != nil {
		return nil
	}
	return &cpuCollector{state: state, last: first}
}

// read refreshes the gauges.
func (c *cpuCollector) read() {
	now, err := c.state()
	if err != nil {
		return // the gauges stay as they were
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use = now.use(c.last)
	c.last = now
}

// Describe implements prometheus.Collector.
func (c *cpuCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- cpuUse.desc
	ch <- memoryTotal.desc
	ch <- memoryUsed.desc
}

// Collect implements prometheus.Collector.
func (c *cpuCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch <- &series{family: cpuUse, value: c.use}
	ch <- &series{family: memoryTotal, value: c.last.memory}
	ch <- &series{family: memoryUsed, value: c.last.memused}
}
