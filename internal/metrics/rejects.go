package metrics

import (
	dto "github.com/prometheus/client_model/go"

	"shoal/internal/reject"
)

var (
	rejected = newFamily("shoal_requests_rejected_total",
		"Requests that were rejected before a model's scheduler had them, by reason; the model is empty when the request was for none that exists, the version when it was for none that is ready", counter)
	closed = newFamily("shoal_connections_closed_total", "Connections that the server closed because of a limit, by the limit", counter)
)

// emitRejects sends the rejected requests of a version; reasons that begin at
// zero are sent even when their count is zero, except those of sessions, which
// most servers do not have.
func emitRejects(e *emitter, rejects *reject.Counter, l *labels, model string, version int64, zero func(reject.Reason) bool) {
	table := rejects.Requests(model, version)
	for p := range reject.ProtocolCount {
		for r := range reject.ReasonCount {
			if n := table[p][r]; n > 0 || zero(r) && p != reject.Session {
				e.value(rejected, l, float64(n), "protocol", p.String(), "reason", r.String())
			}
		}
	}
}

func never(reject.Reason) bool { return false }

// emitOtherRejects sends the rejected requests that were for no version, and the
// closed connections.
func emitOtherRejects(e *emitter, rejects *reject.Counter) {
	for _, name := range rejects.Unversioned() {
		emitRejects(e, rejects, newLabels(name, "", "", "", nil), name, reject.NoVersion, never)
	}
	always := func(r reject.Reason) bool { return r != reject.None }
	emitRejects(e, rejects, newLabels("", "", "", "", nil), "", reject.NoVersion, always)
	for p := range reject.ProtocolCount {
		if p == reject.Session {
			continue // the limits of connections are not its
		}
		for why := range reject.CloseCount {
			e.series(&series{
				family: closed, value: float64(rejects.Connections(p, why)),
				labels: []*dto.LabelPair{label("protocol", p.String()), label("reason", why.String())},
			})
		}
	}
}
