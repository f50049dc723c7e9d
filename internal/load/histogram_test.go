package load

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestHistogramQuantilesAreWithinATenthOfAPercent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	values := make([]time.Duration, 20_000)
	for i := range values {
		values[i] = time.Duration(math.Exp(rng.NormFloat64()*3 + 10)) // from nanoseconds to seconds
		h.Record(values[i])
	}
	slices.Sort(values)
	for _, q := range []float64{0.001, 0.25, 0.5, 0.9, 0.99, 0.999} {
		want := values[int(math.Ceil(q*float64(len(values))))-1]
		got := h.Quantile(q)
		if diff := math.Abs(float64(got - want)); diff > 0.001*float64(want)+1 {
			t.Errorf("quantile %v: got %v, want %v within 0.1 %%", q, got, want)
		}
	}
}

func TestHistogramBucketsStandForTheirValues(t *testing.T) {
	previous := -1
	for _, v := range edges() {
		i := bucketOf(v)
		if i < previous || i >= bucketCount {
			t.Fatalf("bucket of %d: got %d, want at least %d and less than %d", v, i, previous, bucketCount)
		}
		previous = i
		if diff := math.Abs(float64(middleOf(i)) - float64(v)); diff > float64(v)/1024 {
			t.Errorf("bucket %d of %d: got middle %d, want within 1/1024", i, v, middleOf(i))
		}
	}
}

// edges returns values around every power of two in rising order.
func edges() []uint64 {
	var all []uint64
	for shift := range 63 {
		v := uint64(1) << shift
		all = append(all, v-1, v, v+1, v+v/3)
	}
	all = append(all, math.MaxInt64)
	slices.Sort(all)
	return all
}

func TestHistogramMergeIsTheSameAsRecordingInOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var one, left, right, merged Histogram
	for i := range 1000 {
		d := time.Duration(rng.Int64N(int64(time.Second)))
		one.Record(d)
		if i%3 == 0 {
			left.Record(d)
		} else {
			right.Record(d)
		}
	}
	merged.Merge(&Histogram{})
	merged.Merge(&left)
	merged.Merge(&right)
	merged.sum, merged.squares = one.sum, one.squares // the order of additions may change the last bits
	if !reflect.DeepEqual(merged, one) {
		t.Errorf("got count %d, min %v, max %v; want %d, %v, %v and the same buckets",
			merged.Count(), merged.Min(), merged.Max(), one.Count(), one.Min(), one.Max())
	}
}

func TestHistogramOfOneValueSaysThatValue(t *testing.T) {
	var h Histogram
	h.Record(1_234_567)
	for _, q := range []float64{-1, 0, 0.5, 1, 2} {
		if got := h.Quantile(q); got != 1_234_567 {
			t.Errorf("quantile %v: got %d, want 1234567", q, got)
		}
	}
	if h.Mean() != 1_234_567 || h.Min() != h.Max() {
		t.Errorf("got mean %d, min %d, max %d, want 1234567", h.Mean(), h.Min(), h.Max())
	}
}

func TestHistogramDeviationIsThatOfASample(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{2, 4, 4, 4, 5, 5, 7, 9} {
		h.Record(d * time.Millisecond)
	}
	if got, want := h.Deviation(), 2138089*time.Nanosecond; got != want { // sqrt(32/7) ms
		t.Errorf("got %v, want %v", got, want)
	}
	var one Histogram
	one.Record(time.Second)
	if got := one.Deviation(); got != 0 {
		t.Errorf("of one value: got %v, want 0", got)
	}
}

func TestHistogramKeepsItsRoomAfterTheLongest(t *testing.T) {
	var h Histogram
	h.Record(time.Second)
	if got := testing.AllocsPerRun(100, func() { h.Record(time.Millisecond) }); got != 0 {
		t.Errorf("got %v allocations a record, want 0", got)
	}
}

func TestHistogramForgetsWhenReset(t *testing.T) {
	var h, want Histogram
	h.Record(time.Second)
	h.Reset()
	h.Record(time.Millisecond)
	want.Record(time.Second)
	if h.Count() != 1 || h.Max() != time.Millisecond || h.Mean() != time.Millisecond || h.Quantile(1) != time.Millisecond || len(h.counts) != len(want.counts) {
		t.Errorf("got %d values, max %v, mean %v, want one of 1ms and the room of before", h.Count(), h.Max(), h.Mean())
	}
}

func TestHistogramThatIsEmptySaysZero(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Min() != 0 || h.Max() != 0 || h.Count() != 0 {
		t.Errorf("got %v %v %v %v %v, want zeros", h.Quantile(0.5), h.Mean(), h.Min(), h.Max(), h.Count())
	}
}

func TestHistogramTakesANegativeDurationAsZero(t *testing.T) {
	var h Histogram
	h.Record(-time.Second)
	if h.Count() != 1 || h.Max() != 0 {
		t.Errorf("got count %d, max %v, want 1 and 0", h.Count(), h.Max())
	}
}

func BenchmarkHistogramRecord(b *testing.B) {
	var h Histogram
	d := time.Duration(1)
	for b.Loop() {
		h.Record(d)
		d = d*5/4 + 1
		if d > time.Second {
			d = 1
		}
	}
}
