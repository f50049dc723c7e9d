package report

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestTrimmedMeanLeavesOutliersOut(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"none", nil, 0},
		{"few are all taken", []float64{1, 2, 6}, 3},
		{"one of ten at each end goes", []float64{1000, 1, 2, 3, 4, 5, 6, 7, 8, -1000}, 4.5},
	} {
		if got := TrimmedMean(tt.values); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// In 200 samples of a normal distribution the interval of the mean must hold the
// true mean about 190 times.
func TestIntervalHoldsTheTruthAsOftenAsItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	held := 0
	for range 200 {
		values := make([]float64, 30)
		for i := range values {
			values[i] = 10 + rng.NormFloat64()
		}
		low, high := Interval(len(values), func(rounds []int) float64 { return TrimmedMean(Pick(values, rounds)) })
		if low <= 10 && 10 <= high {
			held++
		}
	}
	if held < 175 || held > 199 {
		t.Errorf("got the truth in %d of 200 intervals, want about 190", held)
	}
}

func TestSpreadIsTheMiddleHalfByTheMedian(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"none", nil, 0},
		{"one", []float64{5}, 0},
		{"one far off does not matter", []float64{10, 10, 10, 10, 900}, 0},
		{"evenly", []float64{8, 9, 10, 11, 12}, 0.2},
	} {
		if got := Spread(tt.values); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
