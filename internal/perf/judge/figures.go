package judge

import (
	"fmt"
	"math"

	"shoal/internal/perf/result"
)

const (
	// confidence is that of the displayed intervals.
	confidence = 0.95
	// minSlices is the least number of slices for an interval.
	minSlices = 10
	// minBeyond is how many requests must lie beyond a percentile for an interval
	// of it.
	minBeyond = 5
	// latencyStep is the error from the histogram's buckets.
	latencyStep = 0.0005
)

// Figures returns the figures of a level's windows, with intervals.
func Figures(p *result.Plan, w *result.Window) []result.Figure {
	if w == nil || w.Requests == 0 {
		return nil
	}
	list := []result.Figure{
		{Name: result.FigureThroughput, Value: w.Throughput()},
		{Name: result.FigureMean, Value: float64(w.Latency.Mean())},
	}
	quantiles := result.Percentiles(p)
	for _, q := range quantiles {
		list = append(list, result.Figure{Name: fmt.Sprintf("p%d", q), Value: float64(w.Latency.Quantile(float64(q) / 100))})
	}
	if len(w.Slices) < minSlices {
		return list
	}
	b := newBootstrap(w.Slices, quantiles)
	errors := b.errors()
	for i := range list {
		f := &list[i]
		least := latencyStep
		switch {
		case i == 0:
			least = 1 / float64(w.Requests) // one more or less at an edge
		case i >= 2 && float64(w.Requests)*(1-float64(quantiles[i-2])/100) < minBeyond:
			continue
		}
		setInterval(f, max(errors[i], least), b.freedom())
	}
	return list
}

// setInterval sets the figure's interval. It is symmetric on a logarithmic
// scale, where a half and a double are equally far away.
func setInterval(f *result.Figure, relative, freedom float64) {
	if f.Value <= 0 {
		return
	}
	f.Error, f.Freedom = relative, freedom
	reach := math.Exp(studentT(confidence, freedom) * relative)
	f.Low, f.High = f.Value/reach, f.Value*reach
}

// studentT returns how many standard errors lie on each side of a value in an
// interval of this confidence.
func studentT(confidence, freedom float64) float64 {
	z := math.Sqrt2 * math.Erfinv(confidence)
	if freedom < 3 {
		return exactT(confidence, freedom)
	}
	// Cornish and Fisher's expansion in 1/freedom.
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*freedom) + (5*z5+16*z3+3*z)/(96*freedom*freedom) + (3*z7+19*z5+17*z3-15*z)/(384*freedom*freedom*freedom)
}

// exactT is for the fewest degrees of freedom, where there are closed forms.
func exactT(confidence, freedom float64) float64 {
	if freedom < 2 {
		return math.Tan(math.Pi * confidence / 2) // one degree of freedom
	}
	return confidence * math.Sqrt(2/(1-confidence*confidence)) // two
}
