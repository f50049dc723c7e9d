package top

import (
	"cmp"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// A Spread is a histogram from the wire: non-empty buckets by rising bounds.
type Spread struct{ buckets []bucket }

// A bucket counts the values in (lower, upper].
type bucket struct{ lower, upper, count float64 }

// newSpread reads a histogram: its native buckets if it has some, since they
// are narrower, else the classic ones.
func newSpread(h *dto.Histogram) *Spread {
	if h.Schema != nil && (len(h.GetPositiveSpan()) > 0 || h.GetZeroCount() > 0) {
		return nativeSpread(h)
	}
	s := &Spread{}
	lower, below := 0.0, 0.0
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue // this bucket is the count
		}
		n := float64(b.GetCumulativeCount())
		s.add(lower, b.GetUpperBound(), n-below)
		lower, below = b.GetUpperBound(), n
	}
	s.add(lower, math.Inf(1), float64(h.GetSampleCount())-below)
	return s
}

func nativeSpread(h *dto.Histogram) *Spread {
	s := &Spread{}
	s.add(0, h.GetZeroThreshold(), float64(h.GetZeroCount()))
	width := math.Exp2(-float64(h.GetSchema())) // of a bucket, in powers of two
	index, count, deltas := 0, int64(0), h.GetPositiveDelta()
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range min(int(span.GetLength()), len(deltas)) {
			count += deltas[0]
			deltas = deltas[1:]
			s.add(math.Exp2(float64(index-1)*width), math.Exp2(float64(index)*width), float64(count))
			index++
		}
	}
	return s
}

func (s *Spread) add(lower, upper, count float64) {
	if count > 0 && !math.IsNaN(lower) && !math.IsNaN(upper) {
		s.buckets = append(s.buckets, bucket{lower, upper, count})
	}
}

// count returns how many values there are.
func (s *Spread) count() float64 {
	n := 0.0
	for _, b := range s.buckets {
		n += b.count
	}
	return n
}

// since returns the increase since old; everything when old is nil or has more,
// because the counters were reset.
func (s *Spread) since(old *Spread) *Spread {
	if old == nil || old.count() > s.count() {
		return s
	}
	before := make(map[float64]float64, len(old.buckets))
	for _, b := range old.buckets {
		before[b.upper] = b.count
	}
	d := &Spread{}
	for _, b := range s.buckets {
		d.add(b.lower, b.upper, b.count-before[b.upper])
	}
	return d
}

// plus returns the values of both.
func (s *Spread) plus(o *Spread) *Spread {
	sum := &Spread{slices.Concat(s.buckets, o.buckets)}
	slices.SortFunc(sum.buckets, func(a, b bucket) int { return cmp.Compare(a.upper, b.upper) })
	return sum
}

// quantile returns the q-quantile, to within a bucket's width; nil when there
// are no values.
func (s *Spread) quantile(q float64) *float64 {
	total := s.count()
	if total == 0 {
		return nil
	}
	rank, below := q*total, 0.0
	value := 0.0
	for _, b := range s.buckets {
		value = b.lower
		if !math.IsInf(b.upper, 1) {
			value = b.lower + (b.upper-b.lower)*min(1, (rank-below)/b.count)
		}
		if below += b.count; below >= rank {
			break
		}
	}
	return finite(value)
}
