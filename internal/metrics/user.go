package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"shoal/internal/usermetric"
)

// A UserSource returns the metrics of models' own code.
type UserSource interface {
	Families() []usermetric.Family
}

// userCollector shows models' own metrics. It describes none in advance: they
// come and go with the models.
type userCollector struct{ src UserSource }

func (userCollector) Describe(chan<- *prometheus.Desc) {}

func (c userCollector) Collect(out chan<- prometheus.Metric) {
	for _, f := range c.src.Families() {
		for _, m := range f.Metrics {
			out <- userMetric(f, m)
		}
	}
}

func userMetric(f usermetric.Family, m usermetric.Metric) prometheus.Metric {
	names := slices.Sorted(maps.Keys(m.Labels))
	values := make([]string, len(names))
	for i, n := range names {
		values[i] = m.Labels[n]
	}
	desc := prometheus.NewDesc(f.Name, f.Help, names, nil)
	var made prometheus.Metric
	var err error
	switch f.Kind {
	case usermetric.Histogram:
		made, err = prometheus.NewConstHistogram(desc, m.Count, m.Value, m.Buckets, values...)
	case usermetric.Gauge:
		made, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, m.Value, values...)
	default:
		made, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, m.Value, values...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return made
}
