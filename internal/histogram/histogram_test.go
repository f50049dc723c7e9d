package histogram

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/race"
)

var seconds = []float64{0.001, 0.0025, 0.005, 0.0051, 0.00511, 0.1, 1}

func layout() *Layout { return NewLayout(-24, 12, seconds, -1, 0, 0.1, 0.5) }

func TestCellHoldsTheValue(t *testing.T) {
	l := layout()
	for _, v := range []float64{
		-5, -1, -0.5, 0, 1e-300, 5e-324, 1e-9, math.Ldexp(1, -24), math.Nextafter(math.Ldexp(1, -24), 1),
		0.001, math.Nextafter(0.001, 0), math.Nextafter(0.001, 1), 0.0051, 0.00511, 0.005105, 1, 2, math.Nextafter(2, 3),
		nativeBound(7), nativeBound(-37), 4096, 4097, 1e300, math.Inf(1),
	} {
		c := l.cell(v)
		if v > l.upper[c] || c > 0 && v <= l.upper[c-1] {
			t.Errorf("%v: got cell %d up to %v, want the first that is not below it", v, c, l.upper[c])
		}
	}
}

func FuzzCellHoldsTheValue(f *testing.F) {
	for _, v := range []float64{0, -1, 0.001, 1, 2, 1e9, math.Inf(-1), math.NaN()} {
		f.Add(v)
	}
	l := layout()
	f.Fuzz(func(t *testing.T, v float64) {
		c := l.cell(v)
		if math.IsNaN(v) {
			return
		}
		if v > l.upper[c] || c > 0 && v <= l.upper[c-1] {
			t.Errorf("%v: got cell %d up to %v, want the first that is not below it", v, c, l.upper[c])
		}
	})
}

func TestClassicBucketsAreExact(t *testing.T) {
	h := New(layout())
	sum := 0.0
	for _, d := range []time.Duration{time.Microsecond, time.Millisecond, time.Millisecond + 1, 5 * time.Millisecond, 100 * time.Millisecond, time.Hour} {
		h.Add(float64(d)/1e9, 1)
		sum += d.Seconds()
	}
	s := h.Snapshot(sum)
	if diff := cmp.Diff([]uint64{2, 3, 4, 4, 4, 5, 5}, s.Cumulative(seconds)); diff != "" {
		t.Errorf("values not above %v (-want +got):\n%s", seconds, diff)
	}
	if s.Count() != 6 {
		t.Errorf("got %d values, want 6", s.Count())
	}
	if diff := cmp.Diff([]uint64{0, 0, 4, 5}, s.Cumulative([]float64{-1, 0, 0.005, 0.5})); diff != "" {
		t.Errorf("bounds beside the classic ones (-want +got):\n%s", diff)
	}
}

// TestNativeBucketsAreWhatPrometheusMakes compares with the definition: bucket i
// holds the values in (2^((i-1)/16), 2^(i/16)].
func TestNativeBucketsAreWhatPrometheusMakes(t *testing.T) {
	h := New(layout())
	values := []float64{0.5, 0.51, 1, 1.0001, 2, 3, 3, 0.0051, 0.0052, 1e-9, 5e-9}
	want := map[int32]uint64{}
	zero := uint64(0)
	for _, v := range values {
		h.Add(v, 1)
		if v <= math.Ldexp(1, -24) {
			zero++
			continue
		}
		want[int32(math.Ceil(math.Log2(v)*16))]++
	}
	buckets, gotZero, threshold := h.Snapshot(0).Native()
	got := map[int32]uint64{}
	for _, b := range buckets {
		got[b.Index] += b.Count
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
	if gotZero != zero || threshold != math.Ldexp(1, -24) {
		t.Errorf("got %d values up to %v, want %d up to 2^-24", gotZero, threshold, zero)
	}
	if !slices.IsSortedFunc(buckets, func(a, b Bucket) int { return int(a.Index - b.Index) }) {
		t.Errorf("got %v, want them by rising index", buckets)
	}
}

func TestQuantilesAreWithinACellOfTheTruth(t *testing.T) {
	h := New(layout())
	for i := 1; i <= 10000; i++ {
		h.Add(float64(i)/1e5, 1) // 10 us to 100 ms, evenly
	}
	s := h.Snapshot(0)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		if got, want := s.Quantile(q), q/10; math.Abs(got-want) > 0.03*want {
			t.Errorf("quantile %v: got %v, want %v within 3 %%", q, got, want)
		}
	}
	if got := (Snapshot{}).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing: got %v, want NaN", got)
	}
	over := New(layout())
	over.Add(1e9, 1)
	if got := over.Snapshot(0).Quantile(0.5); got != 4096 {
		t.Errorf("a value beyond the range: got %v, want the range's end, 4096", got)
	}
}

func TestSinceIsWhatCameLater(t *testing.T) {
	h := New(layout())
	h.Add(1, 3)
	old := h.Snapshot(3)
	h.Add(2, 5)
	now := h.Snapshot(13)
	d := now.Since(old)
	if d.Count() != 5 || d.Sum != 10 || math.Abs(d.Quantile(0.5)-2) > 0.1 {
		t.Errorf("got %d values, sum %v, median %v, want 5, 10 and 2", d.Count(), d.Sum, d.Quantile(0.5))
	}
	if all := now.Since(Snapshot{}); all.Count() != 8 {
		t.Errorf("since nothing: got %d values, want all 8", all.Count())
	}
}

func TestAddFromManyGoroutinesLosesNothing(t *testing.T) {
	h := New(layout())
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10000 {
				h.Add(float64(g*i)/1e6, 2)
			}
		})
	}
	wg.Wait()
	if got := h.Snapshot(0).Count(); got != 80000 {
		t.Errorf("got %d values, want 80000", got)
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	h := New(layout())
	if got := testing.AllocsPerRun(100, func() { h.Add(0.0123, 1) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func BenchmarkAdd(b *testing.B) {
	h := New(layout())
	d := time.Duration(1)
	for b.Loop() {
		d = d*7%100_000_000 + 1
		h.Add(float64(d)/1e9, 1)
	}
}
