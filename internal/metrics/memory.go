package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"shoal/internal/inflight"
)

// memoryCollectors report how much of the memory budget is in use.
func memoryCollectors(b *inflight.Budget) []prometheus.Collector {
	return []prometheus.Collector{
		gaugeOf("shoal_inflight_bytes", "Memory that requests and answers in flight hold", b.Used),
		gaugeOf("shoal_inflight_limit_bytes", "Memory that requests and answers in flight may hold, by --max-inflight-bytes", b.Limit),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "shoal_inflight_refused_total",
			Help: "How often a request, an answer or a connection was refused because that memory was used up",
		}, func() float64 { return float64(b.Refused()) }),
	}
}

// Sessions are clients that share memory with the server.
type Sessions interface {
	Sessions() int
	Bytes() int64
}

// sessionCollectors report how many sessions there are and their memory.
func sessionCollectors(s Sessions) []prometheus.Collector {
	return []prometheus.Collector{
		gaugeOf("shoal_sessions", "Open sessions over shared memory", func() int64 { return int64(s.Sessions()) }),
		gaugeOf("shoal_session_bytes", "Memory that the server shares with sessions; a part of shoal_inflight_bytes", s.Bytes),
	}
}

func gaugeOf(name, help string, value func() int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}
