package metrics

import (
	"math"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"shoal/internal/engine"
	counted "shoal/internal/histogram"
	"shoal/internal/infer"
)

// A summary's quantiles are of the last minute, in five steps, as in Triton's
// library; its count and sum are of all time.
const (
	windowSteps = 5
	windowStep  = 12 * time.Second
)

// A window is a summary family and its distribution.
type window struct {
	*family
	values func(*engine.Statistics) counted.Snapshot
	cached bool // only of models whose responses are kept
}

var summaries = []window{
	{
		newFamily("nv_inference_request_summary_us", "Summary of inference request duration in microseconds (includes cached requests)", summary),
		func(s *engine.Statistics) counted.Snapshot { return s.RequestTime }, false,
	},
	{
		newFamily("nv_inference_queue_summary_us", "Summary of inference queuing duration in microseconds (includes cached requests)", summary),
		func(s *engine.Statistics) counted.Snapshot { return s.QueueTime }, false,
	},
	{
		newFamily("nv_inference_compute_input_summary_us", "Cumulative compute input duration in microseconds (does not include cached requests)", summary),
		func(s *engine.Statistics) counted.Snapshot { return s.InputTime }, false,
	},
	{
		newFamily("nv_inference_compute_infer_summary_us", "Cumulative compute inference duration in microseconds (does not include cached requests)", summary),
		func(s *engine.Statistics) counted.Snapshot { return s.InferTime }, false,
	},
	{
		newFamily("nv_inference_compute_output_summary_us", "Cumulative inference compute output duration in microseconds (does not include cached requests)", summary),
		func(s *engine.Statistics) counted.Snapshot { return s.OutputTime }, false,
	},
	{
		newFamily("nv_cache_hit_summary_per_model", "Summary of cache hit counts/durations per model, in microseconds.", summary),
		func(s *engine.Statistics) counted.Snapshot { return s.CacheHitTime }, true,
	},
	{
		newFamily("nv_cache_miss_summary_per_model", "Summary of cache miss counts/durations per model, in microseconds.", summary),
		func(s *engine.Statistics) counted.Snapshot { return s.CacheMissTime }, true,
	},
}

// windows keep the distributions at the last few steps.
type windows struct {
	mu   sync.Mutex // protects past
	past map[versionKey][]past
}

// A versionKey identifies one loading of a version: a later one starts at zero.
type versionKey struct {
	name    string
	version int64
	loaded  time.Time
}

// past are the distributions at one step, in the order of summaries.
type past []counted.Snapshot

func newWindows() *windows { return &windows{past: make(map[versionKey][]past)} }

func keyOf(s *engine.Statistics) versionKey { return versionKey{s.Name, s.Version, s.Loaded} }

// turn takes the step that is due, and removes versions that are gone.
func (w *windows) turn(src Source) {
	stats, err := src.Statistics("", infer.LatestVersion)
	if err != nil {
		return // the next scrape reports the error
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := make(map[versionKey][]past, len(stats))
	for i := range stats {
		s := &stats[i]
		now := make(past, len(summaries))
		for j, f := range summaries {
			now[j] = f.values(s)
		}
		steps := append(w.past[keyOf(s)], now)
		kept[keyOf(s)] = steps[max(0, len(steps)-windowSteps):]
	}
	w.past = kept
}

// before returns the distributions at the beginning of the window, nil when the
// version is younger than that.
func (w *windows) before(s *engine.Statistics) past {
	w.mu.Lock()
	defer w.mu.Unlock()
	if steps := w.past[keyOf(s)]; len(steps) == windowSteps {
		return steps[0]
	}
	return nil
}

func (w *windows) emit(e *emitter, s *engine.Statistics, labels []*dto.LabelPair, quantiles []float64) {
	before := w.before(s)
	for i, f := range summaries {
		if f.cached && !s.Cached {
			continue
		}
		now := f.values(s)
		recent := now
		if before != nil {
			recent = now.Since(before[i])
		}
		n, sum := now.Count(), math.Floor(now.Sum*1e6)
		out := &dto.Summary{SampleCount: &n, SampleSum: &sum}
		for _, q := range quantiles {
			value := math.Round(recent.Quantile(q) * 1e6)
			out.Quantile = append(out.Quantile, &dto.Quantile{Quantile: &q, Value: &value})
		}
		e.series(&series{family: f.family, labels: labels, summary: out})
	}
}
