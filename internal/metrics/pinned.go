package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	pinnedTotal = newFamily("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes", gauge)
	pinnedUsed  = newFamily("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", gauge)
)

// pinnedCollector reports that there is no pool of pinned memory, as Triton
// does: dashboards made for Triton ask for it.
type pinnedCollector struct{}

// Describe implements prometheus.Collector.
func (pinnedCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- pinnedTotal.desc
	ch <- pinnedUsed.desc
}

// Collect implements prometheus.Collector.
func (pinnedCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- &series{family: pinnedTotal}
	ch <- &series{family: pinnedUsed}
}
