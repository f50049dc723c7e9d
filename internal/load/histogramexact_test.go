package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shoal/internal/race"
)

// TestHistogramQuantilesOfAMillion is criterion P9: within 0.1 % of sorting.
func TestHistogramQuantilesOfAMillion(t *testing.T) {
	if race.Enabled {
		t.Skip("arithmetic over many values, ten times slower under the race detector")
	}
	rng := rand.New(rand.NewPCG(9, 9))
	var h Histogram
	values := make([]time.Duration, 1_000_000)
	for i := range values {
		values[i] = time.Duration(math.Exp(rng.NormFloat64() + 14)) // about a millisecond
		h.Record(values[i])
	}
	slices.Sort(values)
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 0.9999} {
		want := values[int(math.Ceil(q*float64(len(values))))-1]
		if got := h.Quantile(q); math.Abs(float64(got-want)) > 0.001*float64(want) {
			t.Errorf("quantile %v: got %v, want %v within 0.1 %%", q, got, want)
		}
	}
}
