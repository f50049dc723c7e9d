package python

import (
	"encoding/json"
	"fmt"

	"shoal/internal/usermetric"
)

// A counter carries out an operation on one of a model's own metrics and
// returns the metric's value.
type counter func(usermetric.Op) (float64, error)

// counter returns the counter of the model's workers. M is nil for a worker
// that only describes its model: its metrics are discarded.
func (m *loaded) counter() counter {
	if m == nil || m.backend.options.Metrics == nil {
		return func(usermetric.Op) (float64, error) { return 0, nil }
	}
	owner := m.owner()
	return func(op usermetric.Op) (float64, error) {
		op.Owner = owner
		return m.backend.options.Metrics.Apply(op)
	}
}

// owner is the model's name in the registry of metrics.
func (m *loaded) owner() string { return fmt.Sprintf("%s/%d", m.src.Model, m.src.Version) }

// metric carries out the operation in a worker's frame, and answers it if the
// worker asks.
func (l *link) metric(payload []byte) error {
	var msg struct {
		Ask    int64
		Metric usermetric.Op
	}
	if err := json.Unmarshal(payload, &msg); err != nil {
		return wireFault("a metric that cannot be read: %v", err)
	}
	value, err := l.count(msg.Metric)
	if msg.Ask == 0 {
		if err != nil {
			l.log.Warn("a metric of the model's own was not counted", "metric", msg.Metric.Family, "err", err)
		}
		return nil
	}
	return l.reply(msg.Ask, value, err)
}
