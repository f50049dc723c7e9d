package engine

import (
	"fmt"
	"math"
	"slices"

	"shoal/internal/histogram"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// The metric families whose buckets a configuration's model_metrics may set.
const (
	FamilyFirstResponse   = "nv_inference_first_response_histogram_ms"
	FamilyRequestDuration = "shoal_request_duration_seconds"
	FamilyQueueDuration   = "shoal_queue_duration_seconds"
	FamilyBatchRows       = "shoal_batch_rows"
)

// defaultBuckets are the default bounds of a family, in the family's unit.
var defaultBuckets = map[string][]float64{
	FamilyFirstResponse:   {100, 500, 2000, 5000},
	FamilyRequestDuration: {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	FamilyQueueDuration:   {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	FamilyBatchRows:       {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
}

// The range of the native buckets: 60 ns to more than an hour, and batches of
// one to a million rows.
const (
	minDuration, maxDuration = -24, 12
	minRows, maxRows         = -1, 20
)

// maxBuckets bounds the series that a model can ask for.
const maxBuckets = 200

// layouts are the histogram layouts of a model.
type layouts struct {
	request, queue, rows *histogram.Layout
	// firstResponse are additional bounds, in milliseconds, of the requests'
	// layout.
	firstResponse []float64
}

// plainLayouts are those of models that set no buckets.
var plainLayouts = newLayouts(defaultBuckets)

func newLayouts(buckets map[string][]float64) *layouts {
	l := &layouts{firstResponse: buckets[FamilyFirstResponse]}
	l.request = histogram.NewLayout(minDuration, maxDuration, buckets[FamilyRequestDuration], inSeconds(l.firstResponse)...)
	l.queue = histogram.NewLayout(minDuration, maxDuration, buckets[FamilyQueueDuration])
	l.rows = histogram.NewLayout(minRows, maxRows, buckets[FamilyBatchRows])
	return l
}

func inSeconds(millis []float64) []float64 {
	out := make([]float64, len(millis))
	for i, ms := range millis {
		out[i] = ms / 1000
	}
	return out
}

// layoutsFor returns the layouts for a configuration, and the families in its
// model_metrics that have no buckets here.
func layoutsFor(cfg *modelpb.ModelConfig) (_ *layouts, unknown []string, _ error) {
	own := make(map[string][]float64)
	for i, c := range cfg.GetModelMetrics().GetMetricControl() {
		family, bounds := c.GetMetricIdentifier().GetFamily(), c.GetHistogramOptions().GetBuckets()
		if defaultBuckets[family] == nil {
			unknown = append(unknown, family)
			continue
		}
		if len(bounds) == 0 {
			continue
		}
		if err := checkBuckets(bounds); err != nil {
			return nil, nil, status.Errorf(status.InvalidArgument, "model_metrics.metric_control[%d].histogram_options.buckets of '%s' %v", i, cfg.GetName(), err)
		}
		own[family] = bounds
	}
	if len(own) == 0 {
		return plainLayouts, unknown, nil
	}
	for family, bounds := range defaultBuckets {
		if own[family] == nil {
			own[family] = bounds
		}
	}
	return newLayouts(own), unknown, nil
}

func checkBuckets(bounds []float64) error {
	if len(bounds) > maxBuckets {
		return fmt.Errorf("has %d entries, at most %d are taken", len(bounds), maxBuckets)
	}
	for i, b := range bounds {
		if math.IsNaN(b) || math.IsInf(b, 0) {
			return fmt.Errorf("must be finite, got %v", b)
		}
		if i > 0 && b <= bounds[i-1] {
			return fmt.Errorf("must rise, got %v after %v", b, bounds[i-1])
		}
	}
	return nil
}

// checkTags refuses metric_tags that cannot be labels of a metric.
func checkTags(cfg *modelpb.ModelConfig) error {
	for key := range cfg.GetMetricTags() {
		if key == "" || key[0] == '_' || slices.ContainsFunc([]byte(key), notInLabels) {
			return status.Errorf(status.InvalidArgument,
				"model '%s': metric_tags has the key %q, which becomes the label '_%s': use letters, digits and inner underscores only", cfg.GetName(), key, key)
		}
	}
	return nil
}

func notInLabels(c byte) bool {
	return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
}
