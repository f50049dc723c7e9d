package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A family is what metrics of one name have in common.
type family struct {
	name, help string
	desc       *prometheus.Desc
	kind       dto.MetricType
}

func newFamily(name, help string, kind dto.MetricType) *family {
	return &family{name, help, prometheus.NewDesc(name, help, nil, nil), kind}
}

const (
	counter   = dto.MetricType_COUNTER
	gauge     = dto.MetricType_GAUGE
	histogram = dto.MetricType_HISTOGRAM
	summary   = dto.MetricType_SUMMARY
)

// A series is one metric at a scrape. It is our own prometheus.Metric because
// the library's const metrics need the same label names for a whole family, and
// metric_tags give each model different ones.
type series struct {
	family    *family
	labels    []*dto.LabelPair
	value     float64
	histogram *dto.Histogram
	summary   *dto.Summary
}

// Desc implements prometheus.Metric.
func (s *series) Desc() *prometheus.Desc { return s.family.desc }

// Write implements prometheus.Metric.
func (s *series) Write(m *dto.Metric) error {
	m.Label = s.labels
	switch s.family.kind {
	case counter:
		m.Counter = &dto.Counter{Value: &s.value}
	case gauge:
		m.Gauge = &dto.Gauge{Value: &s.value}
	case histogram:
		m.Histogram = s.histogram
	case summary:
		m.Summary = s.summary
	}
	return nil
}

// with returns the labels and one more.
func with(labels []*dto.LabelPair, name, value string) []*dto.LabelPair {
	more := append(slices.Clone(labels), label(name, value))
	slices.SortFunc(more, byName)
	return more
}

func label(name, value string) *dto.LabelPair {
	value = strings.ToValidUTF8(value, "\uFFFD") // the library refuses invalid UTF-8
	return &dto.LabelPair{Name: &name, Value: &value}
}

func byName(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) }
