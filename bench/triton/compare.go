package main

import (
	"slices"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/report"
)

// A pair is what the two servers did in one round of one row.
type pair struct {
	Shoal  measure.Sample `json:"shoal"`
	Triton measure.Sample `json:"triton"`
}

// A comparison is what all rounds of a row came to. The ratio is the median of
// the rounds' own ratios: the machine's speed drifts from round to round, and
// within a round it hits both.
type comparison struct {
	Row      string         `json:"row"`
	Callers  int            `json:"callers"`
	Gate     gate           `json:"gate"`
	Floor    float64        `json:"floor"`
	Ratio    float64        `json:"ratio"`
	Least    float64        `json:"ratio_least"`
	Most     float64        `json:"ratio_most"`
	Pass     bool           `json:"pass"`
	CPURatio float64        `json:"cpu_ratio"`
	P50Ratio float64        `json:"p50_ratio"`
	P99Ratio float64        `json:"p99_ratio"`
	P99Limit float64        `json:"p99_limit"`
	Shoal    measure.Sample `json:"shoal"`  // medians
	Triton   measure.Sample `json:"triton"` // medians
	Rounds   []pair         `json:"rounds"`
}

// What p99 may be at most, as a ratio to Triton's. A client on the server's cores
// takes them for milliseconds at a time, and so makes the tail.
const (
	sharedP99 = 2.0
	pinnedP99 = 1.0
)

// compare judges a row by its gate and by its p99.
func compare(r row, rounds []pair, p99Limit float64) comparison {
	c := comparison{Row: r.name(), Callers: r.callers, Gate: r.gate, Floor: r.floor, P99Limit: p99Limit, Rounds: rounds}
	ratios := func(of func(measure.Sample) float64) []float64 {
		var all []float64
		for _, p := range rounds {
			all = append(all, of(p.Shoal)/of(p.Triton))
		}
		return all
	}
	cpuRatios := ratios(func(s measure.Sample) float64 { return s.CPU })
	p50Ratios := ratios(func(s measure.Sample) float64 { return s.P50 })
	c.CPURatio, c.P50Ratio = report.Median(cpuRatios), report.Median(p50Ratios)
	c.P99Ratio = report.Median(ratios(func(s measure.Sample) float64 { return s.P99 }))
	gated := cpuRatios
	if r.gate == p50 {
		gated = p50Ratios
	}
	c.Ratio, c.Least, c.Most = report.Median(gated), slices.Min(gated), slices.Max(gated)
	c.Pass = c.Ratio <= c.Floor && c.P99Ratio <= p99Limit
	var shoal, triton []measure.Sample
	for _, p := range rounds {
		shoal, triton = append(shoal, p.Shoal), append(triton, p.Triton)
	}
	c.Shoal, c.Triton = measure.Medians(shoal), measure.Medians(triton)
	return c
}
