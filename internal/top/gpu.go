package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// A GPU is the state of one GPU of a server's machine.
type GPU struct {
	UUID        string   `json:"uuid"`
	Utilization *float64 `json:"utilization"`
	MemoryUsed  *float64 `json:"memory_used_bytes"`
	MemoryTotal *float64 `json:"memory_total_bytes"`
	Power       *float64 `json:"power_watts"`
}

// takeGPU adds a series about a GPU, and reports whether it is one.
func (s *Sample) takeGPU(family string, m *dto.Metric) bool {
	field := map[string]func(*GPU) **float64{
		"nv_gpu_utilization":        func(g *GPU) **float64 { return &g.Utilization },
		"nv_gpu_memory_used_bytes":  func(g *GPU) **float64 { return &g.MemoryUsed },
		"nv_gpu_memory_total_bytes": func(g *GPU) **float64 { return &g.MemoryTotal },
		"nv_gpu_power_usage":        func(g *GPU) **float64 { return &g.Power },
	}[family]
	if field == nil {
		return false
	}
	uuid := labelOf(m, "gpu_uuid")
	at := slices.IndexFunc(s.GPUs, func(g GPU) bool { return g.UUID == uuid })
	if at < 0 {
		at, _ = slices.BinarySearchFunc(s.GPUs, uuid, func(g GPU, uuid string) int { return cmp.Compare(g.UUID, uuid) })
		s.GPUs = slices.Insert(s.GPUs, at, GPU{UUID: uuid})
	}
	*field(&s.GPUs[at]) = finite(m.GetGauge().GetValue())
	return true
}

// gpuLines list the GPUs; empty when there are none.
func (r *Report) gpuLines() []string {
	var lines []string
	for i := range r.Servers {
		for _, g := range r.Servers[i].GPUs {
			name, _, _ := strings.Cut(strings.TrimPrefix(g.UUID, "GPU-"), "-")
			text := "GPU " + printable(name)
			if g.Utilization != nil {
				text += fmt.Sprintf("  %3.0f%% busy", 100**g.Utilization)
			}
			if g.MemoryUsed != nil && g.MemoryTotal != nil {
				text += fmt.Sprintf("  %.1f of %.1f GB used", *g.MemoryUsed/1e9, *g.MemoryTotal/1e9)
			}
			if g.Power != nil {
				text += fmt.Sprintf("  %.0f W", *g.Power)
			}
			lines = append(lines, text)
		}
	}
	return lines
}
