package load

import (
	"math/bits"
	"time"
)

const (
	// subBits fixes the precision: 2^subBits buckets for each power of two, so
	// that a bucket is at most 1/64 of its value wide and its middle at most
	// 0.8 % from what was recorded.
	subBits    = 6
	subBuckets = 1 << subBits
	// The first 2*subBuckets values have a bucket each; every further power of
	// two up to 2^63 has subBuckets of them.
	bucketCount = 2*subBuckets + (63-subBits-1)*subBuckets
)

// A Histogram counts durations in log-linear buckets, as HdrHistogram does. It is
// our own because the whole of it is two index formulas: a fixed array without
// pointers, no range to choose beforehand and no allocation on the path it
// measures. The zero value is empty and ready. It is not safe for concurrent
// use: each caller has its own, and Merge adds them up.
type Histogram struct {
	counts   [bucketCount]uint64
	n        uint64
	sum      float64 // of nanoseconds; a float does not overflow in a long run
	min, max time.Duration
}

// Record counts d; a negative duration (a clock that was set back) counts as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d))]++
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.sum += float64(d)
}

// Merge adds all that o has counted to h.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() int64 { return int64(h.n) }

// Min returns the shortest recorded duration, exactly; zero when there is none.
func (h *Histogram) Min() time.Duration { return h.min }

// Max returns the longest recorded duration, exactly; zero when there is none.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the average; zero when nothing was recorded.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile returns the duration that the fraction q of all recorded ones do not
// exceed, within 0.8 %: Quantile(0.5) is the median. A q outside 0 to 1 is taken
// as the nearer of the two. It is zero when nothing was recorded.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(1)
	if want := q * float64(h.n); want > 1 {
		rank = min(uint64(want), h.n)
		if float64(rank) < want {
			rank = min(rank+1, h.n)
		}
	}
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return min(max(middleOf(i), h.min), h.max)
		}
	}
	panic("BUG: a histogram's buckets hold less than its count")
}

// bucketOf returns the bucket of v: v itself while v is small, then subBuckets
// for each power of two, chosen by the bits below the highest.
func bucketOf(v uint64) int {
	if v < 2*subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift*subBuckets + int(v>>shift)
}

// middleOf returns the middle of bucket i, the value it stands for.
func middleOf(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(i)
	}
	shift := i/subBuckets - 1
	low := uint64(i-shift*subBuckets) << shift
	return time.Duration(low + (uint64(1)<<shift-1)/2)
}
