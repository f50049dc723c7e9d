package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
)

// histogramJSON is the JSON form of a histogram. It is lossless: a histogram
// that was read again has the same quantiles and can be merged. A bucket is
// named by its lower edge, so that a reader need not know the index formula; it
// reaches up to the next edge, at most 1/512 of its value further.
type histogramJSON struct {
	Count   uint64      `json:"count"`
	Sum     float64     `json:"sum_ns"`
	Squares float64     `json:"sum_of_squares_ns2"`
	Min     int64       `json:"min_ns"`
	Max     int64       `json:"max_ns"`
	Buckets [][2]uint64 `json:"buckets_ns"` // lower edge, count
}

// MarshalJSON writes the histogram's counts, sums and extremes.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	out := histogramJSON{Count: h.n, Sum: h.sum, Squares: h.squares, Min: int64(h.min), Max: int64(h.max), Buckets: [][2]uint64{}}
	for b := range h.Buckets() {
		out.Buckets = append(out.Buckets, [2]uint64{uint64(b.From), b.Count})
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON and refuses anything else.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var in histogramJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	read := Histogram{n: in.Count, sum: in.Sum, squares: in.Squares, min: time.Duration(in.Min), max: time.Duration(in.Max)}
	left, next := in.Count, 0
	for _, b := range in.Buckets {
		i := bucketOf(b[0])
		if b[0] > uint64(lowerOf(bucketCount-1)) || uint64(lowerOf(i)) != b[0] || i < next {
			return fmt.Errorf("histogram: %d is not the edge of a bucket after the one before it", b[0])
		}
		if b[1] == 0 || b[1] > left {
			return fmt.Errorf("histogram: the bucket at %d has %d of the %d that are left", b[0], b[1], left)
		}
		if i >= len(read.counts) {
			read.grow(i)
		}
		read.counts[i] = b[1]
		left, next = left-b[1], i+1
	}
	switch {
	case left != 0:
		return fmt.Errorf("histogram: %d of %d are in no bucket", left, in.Count)
	case in.Count > 0 && (read.min < 0 || bucketOf(uint64(read.min)) != bucketOf(in.Buckets[0][0])):
		return errors.New("histogram: min_ns does not lie in the first bucket")
	case in.Count > 0 && (read.max < read.min || bucketOf(uint64(read.max)) != bucketOf(in.Buckets[len(in.Buckets)-1][0])):
		return errors.New("histogram: max_ns does not lie in the last bucket")
	case in.Count == 0 && (read.min != 0 || read.max != 0):
		return errors.New("histogram: an empty one has extremes")
	}
	*h = read
	return nil
}

// A Bucket is a part of a histogram: Count durations of at least From and less
// than To.
type Bucket struct {
	From, To time.Duration
	Count    uint64
}

// Buckets gives the buckets that are not empty, from the shortest durations up.
func (h *Histogram) Buckets() iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		for i, c := range h.counts {
			to := time.Duration(math.MaxInt64) // the end of the last bucket does not fit
			if i+1 < bucketCount {
				to = lowerOf(i + 1)
			}
			if c > 0 && !yield(Bucket{From: lowerOf(i), To: to, Count: c}) {
				return
			}
		}
	}
}
