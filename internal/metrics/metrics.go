// Package metrics is the Prometheus endpoint: the models' counters under the
// names that Triton gives them, and the process's own. A Handler reads the
// engine when it is scraped; nothing here is on a request's path.
package metrics

import (
	"log/slog"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"shoal/internal/engine"
)

// A Source tells the counters of every version that is ready.
type Source interface {
	Statistics(name string, version int64) ([]engine.Statistics, error)
}

// NewHandler returns the handler of GET /metrics.
func NewHandler(src Source, log *slog.Logger) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		modelCollector{src},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	rich := promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = w.Write([]byte(`{"error":"Method Not Allowed"}`))
			return
		}
		if expfmt.NegotiateIncludingOpenMetrics(r.Header).FormatType() != expfmt.TypeTextPlain {
			rich.ServeHTTP(w, r)
			return
		}
		families, err := reg.Gather()
		if err != nil {
			log.Error("gathering metrics", "err", err)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(appendText(nil, families)) // a client that has gone needs no answer
	})
	return mux
}

// modelCollector makes metrics of the engine's counters at each scrape.
type modelCollector struct{ src Source }

type family struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*engine.Statistics) float64
}

var modelLabels = []string{"model", "version"}

func newFamily(name, help string, kind prometheus.ValueType, value func(*engine.Statistics) float64) family {
	return family{prometheus.NewDesc(name, help, modelLabels, nil), kind, value}
}

func micros(d engine.Duration) float64 { return float64(d.Ns / 1000) }

var families = []family{
	newFamily("nv_inference_request_success", "Number of successful inference requests, all batch sizes",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return float64(s.Success.Count) }),
	newFamily("nv_inference_count", "Number of inferences performed (does not include cached requests)",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return float64(s.InferenceCount) }),
	newFamily("nv_inference_exec_count", "Number of model executions performed (does not include cached requests)",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return float64(s.ExecutionCount) }),
	newFamily("nv_inference_request_duration_us", "Cumulative inference request duration in microseconds (includes cached requests)",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return micros(s.Success) }),
	newFamily("nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds (includes cached requests)",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return micros(s.Queue) }),
	newFamily("nv_inference_compute_input_duration_us", "Cumulative compute input duration in microseconds (does not include cached requests)",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return micros(s.ComputeInput) }),
	newFamily("nv_inference_compute_infer_duration_us", "Cumulative compute inference duration in microseconds (does not include cached requests)",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return micros(s.ComputeInfer) }),
	newFamily("nv_inference_compute_output_duration_us", "Cumulative inference compute output duration in microseconds (does not include cached requests)",
		prometheus.CounterValue, func(s *engine.Statistics) float64 { return micros(s.ComputeOutput) }),
	newFamily("nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution per-model.",
		prometheus.GaugeValue, func(s *engine.Statistics) float64 { return float64(s.Pending) }),
}

var failure = prometheus.NewDesc("nv_inference_request_failure", "Number of failed inference requests, all batch sizes",
	[]string{"model", "version", "reason"}, nil)

// Describe implements prometheus.Collector.
func (c modelCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- f.desc
	}
	ch <- failure
}

// Collect implements prometheus.Collector.
func (c modelCollector) Collect(ch chan<- prometheus.Metric) {
	stats, err := c.src.Statistics("", 0)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(failure, err)
		return
	}
	for i := range stats {
		s := &stats[i]
		version := strconv.FormatInt(s.Version, 10)
		for _, f := range families {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(s), s.Name, version)
		}
		for reason, n := range s.Failures {
			ch <- prometheus.MustNewConstMetric(failure, prometheus.CounterValue, float64(n), s.Name, version, reason)
		}
	}
}
