package load

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

const (
	// subBits fixes the precision: 2^subBits buckets for each power of two, so
	// that a bucket is at most 1/512 of its value wide and its middle at most
	// 0.1 % from what was recorded.
	subBits    = 9
	subBuckets = 1 << subBits
	// The first 2*subBuckets values have a bucket each; every further power of
	// two up to 2^63 has subBuckets of them.
	bucketCount = 2*subBuckets + (63-subBits-1)*subBuckets
)

// A Histogram counts durations in log-linear buckets, as HdrHistogram does. It
// is our own because it consists of two index formulas: there is no range to
// choose, and it allocates only while the longest duration grows. The zero
// value is empty and ready. It is not safe for concurrent use: each caller has
// its own, and Merge adds them up.
type Histogram struct {
	counts   []uint64 // up to the highest bucket in use, rounded up
	n        uint64
	sum      float64 // of nanoseconds; a float does not overflow in a long run
	squares  float64
	min, max time.Duration
}

// Record counts d; a negative duration (a clock that was set back) counts as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	i := bucketOf(uint64(d))
	if i >= len(h.counts) {
		h.grow(i)
	}
	h.counts[i]++
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.sum += float64(d)
	h.squares += float64(d) * float64(d)
}

// grow makes room for bucket i and the rest of its power of two.
func (h *Histogram) grow(i int) {
	size := min((i/subBuckets+1)*subBuckets, bucketCount)
	h.counts = append(slices.Grow(h.counts, size-len(h.counts)), make([]uint64, size-len(h.counts))...)
}

// Reset empties h and keeps its memory.
func (h *Histogram) Reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts}
}

// Merge adds all that o has counted to h.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if len(o.counts) > len(h.counts) {
		h.grow(len(o.counts) - 1)
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
	h.squares += o.squares
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

// Deviation returns the sample standard deviation; zero when there are fewer
// than two durations.
func (h *Histogram) Deviation() time.Duration {
	if h.n < 2 {
		return 0
	}
	n := float64(h.n)
	variance := (h.squares - h.sum*h.sum/n) / (n - 1)
	return time.Duration(math.Sqrt(max(variance, 0))) // rounding may make it negative
}

// Quantile returns the q-quantile of the recorded durations, within 0.1 %:
// Quantile(0.5) is the median. A q outside 0 to 1 is clamped. It is zero when
// nothing was recorded.
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
	return lowerOf(i) + time.Duration((uint64(1)<<shift-1)/2)
}

// lowerOf returns the smallest value that falls into bucket i.
func lowerOf(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(i)
	}
	shift := i/subBuckets - 1
	return time.Duration(uint64(i-shift*subBuckets) << shift)
}
