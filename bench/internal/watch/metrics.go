package watch

import (
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"shoal/bench/internal/peer"
)

// Metrics are the families that a server has counted, by name.
type Metrics map[string]*dto.MetricFamily

// ReadMetrics reads the server's metrics.
func ReadMetrics(s *peer.Server) (Metrics, error) {
	body, err := get("http://" + s.Metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	return families, err
}

// Sum adds up the counters and gauges of a family that have these labels (name,
// value, name, value); all of them without labels. A family that is not there
// is 0.
func (m Metrics) Sum(family string, labels ...string) float64 {
	var sum float64
	for _, metric := range m[family].GetMetric() {
		if has(metric, labels) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return sum
}

func has(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || (l.GetName() == labels[i] && l.GetValue() == labels[i+1])
		}
		if !found {
			return false
		}
	}
	return true
}
