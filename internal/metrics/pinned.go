package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"shoal/internal/backend/cuda"
)

var (
	pinnedTotal = newFamily("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes", gauge)
	pinnedUsed  = newFamily("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", gauge)
)

// pinnedCollector reports how much host memory is pinned for GPUs. The pool's
// size is its limit, 0 without one.
type pinnedCollector struct{}

// Describe implements prometheus.Collector.
func (pinnedCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- pinnedTotal.desc
	ch <- pinnedUsed.desc
}

// Collect implements prometheus.Collector.
func (pinnedCollector) Collect(ch chan<- prometheus.Metric) {
	used, limit := cuda.PinnedBytes()
	ch <- &series{family: pinnedTotal, value: float64(limit)}
	ch <- &series{family: pinnedUsed, value: float64(used)}
}
