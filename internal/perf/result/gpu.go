package result

import (
	"maps"
	"math"
)

// A GPUMetrics has the server's GPU metrics by the GPU's id: means of utilization
// and power, the most memory used, the memory there is.
type GPUMetrics struct {
	Utilization map[string]float64 `json:"utilization,omitempty"`
	Power       map[string]float64 `json:"power_watts,omitempty"`
	MemoryUsed  map[string]float64 `json:"memory_used_bytes,omitempty"`
	MemoryTotal map[string]float64 `json:"memory_total_bytes,omitempty"`
}

// Merged returns m together with an earlier period of equal length.
func (m *GPUMetrics) Merged(earlier *GPUMetrics) *GPUMetrics {
	if earlier == nil {
		return m
	}
	mean := func(a, b float64) float64 { return (a + b) / 2 }
	return &GPUMetrics{
		Utilization: joined(earlier.Utilization, m.Utilization, mean), Power: joined(earlier.Power, m.Power, mean),
		MemoryUsed:  joined(earlier.MemoryUsed, m.MemoryUsed, math.Max),
		MemoryTotal: joined(earlier.MemoryTotal, m.MemoryTotal, mean),
	}
}

// joined returns the union of both maps; both combines the values of a GPU that
// is in both.
func joined(a, b map[string]float64, both func(a, b float64) float64) map[string]float64 {
	out := maps.Clone(a)
	for gpu, v := range b {
		if old, ok := out[gpu]; ok {
			v = both(old, v)
		}
		if out == nil {
			out = make(map[string]float64)
		}
		out[gpu] = v
	}
	return out
}
