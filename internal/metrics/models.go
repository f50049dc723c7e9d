package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/reject"
)

// modelCollector makes metrics from the engine's counters at each scrape. The
// series of a model end when it is unloaded.
type modelCollector struct {
	src      Source
	settings Settings
	rejects  *reject.Counter // nil for none
	windows  *windows        // nil without summaries
}

// A number is a family with one value for each version.
type number struct {
	*family
	value func(*engine.Statistics) float64
}

func newNumber(name, help string, kind dto.MetricType, value func(*engine.Statistics) float64) number {
	return number{newFamily(name, help, kind), value}
}

func micros(d engine.Duration) float64 { return float64(d.Ns / 1000) }

// counts are the counters that exist, at zero, even when latency counters are
// off, as in Triton.
var counts = []number{
	newNumber("nv_inference_request_success", "Number of successful inference requests, all batch sizes", counter,
		func(s *engine.Statistics) float64 { return float64(s.Success.Count) }),
	newNumber("nv_inference_count", "Number of inferences performed (does not include cached requests)", counter,
		func(s *engine.Statistics) float64 { return float64(s.InferenceCount) }),
	newNumber("nv_inference_exec_count", "Number of model executions performed (does not include cached requests)", counter,
		func(s *engine.Statistics) float64 { return float64(s.ExecutionCount) }),
}

// latencies are the counters that do not.
var latencies = []number{
	newNumber("nv_inference_request_duration_us", "Cumulative inference request duration in microseconds (includes cached requests)", counter,
		func(s *engine.Statistics) float64 { return micros(s.Success) }),
	newNumber("nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds (includes cached requests)", counter,
		func(s *engine.Statistics) float64 { return micros(s.Queue) }),
	newNumber("nv_inference_compute_input_duration_us", "Cumulative compute input duration in microseconds (does not include cached requests)", counter,
		func(s *engine.Statistics) float64 { return micros(s.ComputeInput) }),
	newNumber("nv_inference_compute_infer_duration_us", "Cumulative compute inference duration in microseconds (does not include cached requests)", counter,
		func(s *engine.Statistics) float64 { return micros(s.ComputeInfer) }),
	newNumber("nv_inference_compute_output_duration_us", "Cumulative inference compute output duration in microseconds (does not include cached requests)", counter,
		func(s *engine.Statistics) float64 { return micros(s.ComputeOutput) }),
}

// cached are of the models whose responses are kept.
var cached = []number{
	newNumber("nv_cache_num_hits_per_model", "Number of cache hits per model", counter,
		func(s *engine.Statistics) float64 { return float64(s.CacheHit.Count) }),
	newNumber("nv_cache_num_misses_per_model", "Number of cache misses per model", counter,
		func(s *engine.Statistics) float64 { return float64(s.CacheMiss.Count) }),
	newNumber("nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds", counter,
		func(s *engine.Statistics) float64 { return micros(s.CacheHit) }),
	newNumber("nv_cache_miss_duration_per_model", "Total cache miss (insert+lookup) duration per model, in microseconds", counter,
		func(s *engine.Statistics) float64 { return micros(s.CacheMiss) }),
}

// always exist whatever the settings: Triton's gauges, and ours.
var always = []number{
	newNumber("nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution per-model.", gauge,
		func(s *engine.Statistics) float64 { return float64(s.Pending) }),
	newNumber("nv_model_load_duration_secs", "Model load time in seconds", gauge,
		func(s *engine.Statistics) float64 { return s.LoadDuration.Seconds() }),
	newNumber("shoal_requests_refused_total", "Requests that were refused at once because the queue was full or closed; no other counter has them", counter,
		func(s *engine.Statistics) float64 { return float64(s.Refused) }),
	newNumber("shoal_instances", "Instances of the model", gauge,
		func(s *engine.Statistics) float64 { return float64(s.Instances) }),
	newNumber("shoal_instances_busy", "Instances that are running a batch", gauge,
		func(s *engine.Statistics) float64 { return float64(s.Busy) }),
	newNumber("shoal_instance_busy_seconds_total", "How long the model's instances have run batches, in sum; its rate, divided by shoal_instances, is the share of the time that they are busy", counter,
		func(s *engine.Statistics) float64 { return s.BusyTime.Seconds() }),
}

var (
	failures = newFamily("nv_inference_request_failure", "Number of failed inference requests, all batch sizes", counter)
	formed   = newFamily("shoal_batches_total",
		"Batches that went to an instance, by why they went: idle (nobody asked them to wait), preferred (a preferred size), full (the largest size) or delay (waited long enough)", counter)
	workerRestarts = newFamily("shoal_worker_restarts_total", "How often the process behind an instance was started again", counter)
	workerMemory   = newFamily("shoal_worker_resident_bytes", "Resident memory of the process behind an instance, with what it shares with the server; 0 while it is not there", gauge)
	workerTime     = newFamily("shoal_worker_handler_seconds_total", "Time that the model's own code took in the process behind an instance", counter)
	modelMemory    = newFamily("shoal_model_gpu_memory_bytes", "Memory of a GPU that the model's instances reserved at load: weights, ONNX Runtime's arena and tensors", gauge)
	batchRows      = newFamily(engine.FamilyBatchRows, "Rows of the batches that went to an instance", histogram)
	requestTimes   = newFamily(engine.FamilyRequestDuration, "How long requests took that were answered well, from acceptance to answer", histogram)
	queueTimes     = newFamily(engine.FamilyQueueDuration, "How long requests that were answered well waited for an instance", histogram)
	firstAnswer    = newFamily(engine.FamilyFirstResponse, "Duration from request to first response in milliseconds", histogram)
)

// Describe implements prometheus.Collector. It describes nothing, since the
// labels depend on the models.
func (c *modelCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *modelCollector) Collect(ch chan<- prometheus.Metric) {
	if err := c.emit(&emitter{ch: ch}); err != nil {
		ch <- prometheus.NewInvalidMetric(failures.desc, err)
	}
}

// emit sends everything about models.
func (c *modelCollector) emit(e *emitter) error {
	stats, err := c.src.Statistics("", infer.LatestVersion)
	if err != nil {
		return err
	}
	for i := range stats {
		s := &stats[i]
		l := labelsOf(s, "")
		brief := len(stats) > manyVersions && unused(s)
		c.model(e, s, l, brief)
		if c.rejects != nil {
			zero := reject.Reason.PerModel
			if brief {
				zero = never
			}
			emitRejects(e, c.rejects, l, s.Name, s.Version, zero)
		}
	}
	if c.rejects != nil {
		emitOtherRejects(e, c.rejects)
	}
	return nil
}

// manyVersions is how many versions a server may have before those that never had
// a request have fewer series: 90 for each would be hundreds of thousands.
const manyVersions = 500

// unused reports whether the version never had a request.
func unused(s *engine.Statistics) bool {
	return s.Success.Count == 0 && s.Fail.Count == 0 && s.Refused == 0 && s.Pending == 0 && s.Busy == 0
}

// model sends the series of a version. brief leaves out those of Shoal's own that
// begin at zero.
func (c *modelCollector) model(e *emitter, s *engine.Statistics, l *labels, brief bool) {
	frozen := 1.0
	if c.settings.NoCounters {
		frozen = 0
	}
	of := l // the counters of a model on one GPU name it, as Triton's do
	if len(s.GPUs) == 1 && s.GPUs[0].UUID != "" {
		of = labelsOf(s, s.GPUs[0].UUID)
	}
	for _, n := range counts {
		e.value(n.family, of, frozen*n.value(s))
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Failures)) {
		e.value(failures, l, frozen*float64(s.Failures[reason]), "reason", reason)
	}
	if !c.settings.NoCounters {
		for _, n := range latencies {
			e.value(n.family, of, n.value(s))
		}
	}
	for _, g := range s.GPUs {
		if g.Bytes > 0 {
			e.value(modelMemory, labelsOf(s, g.UUID), float64(g.Bytes))
		}
	}
	if s.Cached {
		for _, n := range cached {
			e.value(n.family, l, frozen*n.value(s))
		}
	}
	for _, n := range always {
		e.value(n.family, l, n.value(s))
	}
	for _, w := range s.Workers {
		own := with(l.pairs(), "instance", w.Name)
		e.series(&series{family: workerRestarts, labels: own, value: float64(w.Restarts)})
		e.series(&series{family: workerMemory, labels: own, value: float64(w.Resident)})
		e.series(&series{family: workerTime, labels: own, value: w.Handler.Seconds()})
	}
	if brief {
		return
	}
	for reason, n := range s.Formed {
		e.value(formed, l, float64(n), "reason", infer.Reason(reason).String())
	}
	e.distribution(batchRows, l, s.BatchRows)
	e.distribution(requestTimes, l, s.RequestTime)
	e.distribution(queueTimes, l, s.QueueTime)
	if c.settings.FirstResponse {
		e.series(&series{family: firstAnswer, labels: l.pairs(), histogram: firstResponse(s)})
	}
	if c.windows != nil {
		c.windows.emit(e, s, l.pairs(), c.settings.Quantiles)
	}
}
