package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"shoal/internal/inflight"
)

// memoryCollectors report how much of the memory budget is in use.
func memoryCollectors(b *inflight.Budget) []prometheus.Collector {
	gauge := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	return []prometheus.Collector{
		gauge("shoal_inflight_bytes", "Memory that requests and answers in flight hold", b.Used),
		gauge("shoal_inflight_limit_bytes", "Memory that requests and answers in flight may hold, by --max-inflight-bytes", b.Limit),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "shoal_inflight_refused_total",
			Help: "How often a request, an answer or a connection was refused because that memory was used up",
		}, func() float64 { return float64(b.Refused()) }),
	}
}
