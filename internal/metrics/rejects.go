package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"shoal/internal/infer"
	"shoal/internal/reject"
)

var (
	rejected = newFamily("shoal_requests_rejected_total",
		"Requests that were rejected before a model's scheduler had them, by reason; the model is empty when the request was for none that exists, the version when it was for none that is ready", counter)
	closed = newFamily("shoal_connections_closed_total", "Connections that the server closed because of a limit, by the limit", counter)
)

// rejectCollector makes metrics of rejected requests and closed connections.
type rejectCollector struct {
	src     Source
	rejects *reject.Counter
}

// Describe implements prometheus.Collector. It describes nothing, since the
// labels depend on the models.
func (c rejectCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c rejectCollector) Collect(ch chan<- prometheus.Metric) {
	stats, err := c.src.Statistics("", infer.LatestVersion)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(rejected.desc, err)
		return
	}
	for i := range stats {
		c.requests(ch, labelsOf(&stats[i]), stats[i].Name, stats[i].Version, reject.Reason.PerModel)
	}
	never := func(reject.Reason) bool { return false }
	for _, name := range c.rejects.Unversioned() {
		c.requests(ch, unversioned(name), name, reject.NoVersion, never)
	}
	always := func(r reject.Reason) bool { return r != reject.None }
	c.requests(ch, unversioned(""), "", reject.NoVersion, always)
	for p := range reject.ProtocolCount {
		for why := range reject.CloseCount {
			ch <- &series{
				family: closed, value: float64(c.rejects.Connections(p, why)),
				labels: []*dto.LabelPair{label("protocol", p.String()), label("reason", why.String())},
			}
		}
	}
}

// requests sends the counts of a version; reasons that begin at zero are sent
// even when their count is zero.
func (c rejectCollector) requests(ch chan<- prometheus.Metric, labels []*dto.LabelPair, model string, version int64, zero func(reject.Reason) bool) {
	for p := range reject.ProtocolCount {
		for r := range reject.ReasonCount {
			n := c.rejects.Requests(model, version, p, r)
			if n == 0 && !zero(r) {
				continue
			}
			own := with(with(labels, "protocol", p.String()), "reason", r.String())
			ch <- &series{family: rejected, labels: own, value: float64(n)}
		}
	}
}

func unversioned(model string) []*dto.LabelPair {
	return []*dto.LabelPair{label("model", model), label("version", "")}
}
