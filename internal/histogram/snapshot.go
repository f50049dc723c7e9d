package histogram

import "math"

// A Snapshot is the counts of a histogram at one time. The zero value is empty.
type Snapshot struct {
	Layout *Layout
	Sum    float64

	counts []uint64 // nil when there are no values
}

// Count returns how many values there are.
func (s Snapshot) Count() uint64 {
	n := uint64(0)
	for _, c := range s.counts {
		n += c
	}
	return n
}

// Since returns the counts since an earlier snapshot of the same histogram; all
// of them when old is the zero value.
func (s Snapshot) Since(old Snapshot) Snapshot {
	if old.counts == nil {
		s.Sum -= old.Sum
		return s
	}
	d := Snapshot{Layout: s.Layout, Sum: s.Sum - old.Sum, counts: make([]uint64, len(s.counts))}
	for i := range s.counts {
		d.counts[i] = s.counts[i] - old.counts[i]
	}
	return d
}

// Cumulative returns, for each of the rising bounds, how many values are at
// most that. The layout must have been cut at them.
func (s Snapshot) Cumulative(bounds []float64) []uint64 {
	out := make([]uint64, len(bounds))
	c, n := 0, uint64(0)
	for i, b := range bounds {
		for c < len(s.counts) && s.Layout.upper[c] <= b {
			n += s.counts[c]
			c++
		}
		out[i] = n
	}
	return out
}

// A Bucket is a native bucket: Index says which, Count how many values.
type Bucket struct {
	Index int32
	Count uint64
}

// Native returns the non-empty native buckets, by rising index, and separately
// the number of values up to threshold.
func (s Snapshot) Native() (buckets []Bucket, zero uint64, threshold float64) {
	if s.Layout == nil {
		return nil, 0, 0
	}
	for c, n := range s.counts {
		index := s.Layout.native[c]
		switch last := len(buckets) - 1; {
		case n == 0:
		case index == s.Layout.zeroBucket():
			zero += n
		case last >= 0 && buckets[last].Index == index:
			buckets[last].Count += n
		default:
			buckets = append(buckets, Bucket{index, n})
		}
	}
	return buckets, zero, math.Ldexp(1, s.Layout.low)
}

// Quantile returns the q-quantile, to within a cell's width, and NaN when there
// are no values.
func (s Snapshot) Quantile(q float64) float64 {
	total := s.Count()
	if total == 0 {
		return math.NaN()
	}
	rank := q * float64(total)
	below := uint64(0)
	for c, n := range s.counts {
		if n > 0 && float64(below+n) >= rank {
			return s.Layout.within(c, (rank-float64(below))/float64(n))
		}
		below += n
	}
	return s.Layout.upper[len(s.Layout.upper)-2]
}

// within interpolates at the share f of a cell, as if its values were evenly
// spread over the logarithm.
func (l *Layout) within(c int, f float64) float64 {
	lower, upper := 0.0, l.upper[c]
	if c > 0 {
		lower = max(l.upper[c-1], 0)
	}
	switch {
	case math.IsInf(upper, 1):
		return lower
	case lower == 0:
		return max(upper, 0) * f
	}
	return lower * math.Pow(upper/lower, f)
}
