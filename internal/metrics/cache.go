package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"shoal/internal/respcache"
)

// cacheGauges are those of the whole response cache. Triton has the sums as gauges, too.
var cacheGauges = []struct {
	*family
	value func(*respcache.Stats) float64
}{
	{newFamily("nv_cache_util", "Cache utilization [0.0 - 1.0]", gauge), func(s *respcache.Stats) float64 { return float64(s.Bytes) / float64(max(s.Limit, 1)) }},
	{newFamily("nv_cache_num_entries", "Number of responses stored in response cache", gauge), func(s *respcache.Stats) float64 { return float64(s.Responses) }},
	{newFamily("nv_cache_num_hits", "Number of cache hits in response cache", gauge), func(s *respcache.Stats) float64 { return float64(s.Hits) }},
	{newFamily("nv_cache_num_misses", "Number of cache misses in response cache", gauge), func(s *respcache.Stats) float64 { return float64(s.Misses) }},
	{newFamily("nv_cache_num_lookups", "Number of cache lookups in response cache", gauge), func(s *respcache.Stats) float64 { return float64(s.Hits + s.Misses) }},
	{newFamily("nv_cache_num_evictions", "Number of cache evictions in response cache", gauge), func(s *respcache.Stats) float64 { return float64(s.Evictions) }},
	{newFamily("nv_cache_lookup_duration", "Total cache lookup duration (hit and miss), in microseconds", gauge), func(s *respcache.Stats) float64 { return float64(s.Lookup.Microseconds()) }},
	{newFamily("nv_cache_insertion_duration", "Total cache insertion duration, in microseconds", gauge), func(s *respcache.Stats) float64 { return float64(s.Insertion.Microseconds()) }},
}

// cacheCollector reports the response cache as a whole.
type cacheCollector struct{ cache *respcache.Cache }

// Describe implements prometheus.Collector.
func (cacheCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range cacheGauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c cacheCollector) Collect(ch chan<- prometheus.Metric) {
	stats := c.cache.Stats()
	for _, g := range cacheGauges {
		ch <- &series{family: g.family, value: g.value(&stats)}
	}
}
