package report

import (
	"math/rand/v2"
	"slices"
)

// TrimmedMean returns the mean of the values without the lowest and the highest
// tenth of them, and zero of none.
func TrimmedMean(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	cut := len(sorted) / 10
	sorted = sorted[cut : len(sorted)-cut]
	sum := 0.0
	for _, v := range sorted {
		sum += v
	}
	return sum / max(1, float64(len(sorted)))
}

// resamples is how often a sample is drawn again for an interval.
const resamples = 1000

// Interval returns where a statistic of n rounds lies with 95 % confidence: it is
// worked out again for rounds drawn at random from those that there are (the
// bootstrap). The statistic gets the indices of the rounds. The same rounds give
// the same interval.
func Interval(n int, statistic func(rounds []int) float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, 1))
	rounds, all := make([]int, n), make([]float64, resamples)
	for i := range all {
		for k := range rounds {
			rounds[k] = rng.IntN(n)
		}
		all[i] = statistic(rounds)
	}
	slices.Sort(all)
	return all[resamples*25/1000], all[resamples*975/1000-1]
}

// Pick returns the values at the given places.
func Pick(values []float64, places []int) []float64 {
	picked := make([]float64, len(places))
	for i, p := range places {
		picked[i] = values[p]
	}
	return picked
}

// Spread returns how far values are from each other: the middle half of them, by
// the median.
func Spread(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 {
		place := q * float64(len(sorted)-1)
		i := int(place)
		return sorted[i] + (place-float64(i))*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
	}
	if len(sorted) == 0 || Median(sorted) == 0 {
		return 0
	}
	return (at(0.75) - at(0.25)) / Median(sorted)
}
