package metrics

import (
	"math"

	dto "github.com/prometheus/client_model/go"

	"shoal/internal/engine"
	counted "shoal/internal/histogram"
)

// both returns a histogram with classic and native buckets. The text format has
// the classic ones; a Prometheus that asks for protobuf gets both.
func both(s counted.Snapshot) *dto.Histogram {
	h := classic(s, s.Layout.Bounds(), 1)
	h.SampleSum = &s.Sum
	buckets, zero, threshold := s.Native()
	schema := int32(counted.Schema)
	h.Schema, h.ZeroCount, h.ZeroThreshold = &schema, &zero, &threshold
	h.PositiveSpan, h.PositiveDelta = spans(buckets)
	return h
}

// classic returns the count and the classic buckets. The bounds are in a unit
// of which perUnit make one of the snapshot's.
func classic(s counted.Snapshot, bounds []float64, perUnit float64) *dto.Histogram {
	n := s.Count()
	h := &dto.Histogram{SampleCount: &n}
	scaled := make([]float64, len(bounds))
	for i, b := range bounds {
		scaled[i] = b / perUnit
	}
	for i, below := range s.Cumulative(scaled) {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &bounds[i], CumulativeCount: &below})
	}
	return h
}

// firstResponse returns Triton's histogram of milliseconds. Its sum is a whole
// number, as in Triton: people parse it as an integer.
func firstResponse(s *engine.Statistics) *dto.Histogram {
	h := classic(s.FirstResponseTime, s.FirstResponse, 1000)
	sum := math.Floor(s.FirstResponseTime.Sum * 1000)
	h.SampleSum = &sum
	return h
}

// spans converts native buckets to the wire format: runs of neighbours, and the
// differences between their counts.
func spans(buckets []counted.Bucket) (runs []*dto.BucketSpan, deltas []int64) {
	next, last := int32(0), int64(0)
	for i, b := range buckets {
		gap := b.Index - next
		if i == 0 || gap > 0 {
			length := uint32(0)
			runs = append(runs, &dto.BucketSpan{Offset: &gap, Length: &length})
		}
		*runs[len(runs)-1].Length++
		deltas = append(deltas, int64(b.Count)-last)
		next, last = b.Index+1, int64(b.Count)
	}
	if len(runs) == 0 { // an empty run marks a native histogram
		runs = append(runs, &dto.BucketSpan{Offset: new(int32), Length: new(uint32)})
	}
	return runs, deltas
}
