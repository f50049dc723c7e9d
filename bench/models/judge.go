package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/report"
	"shoal/bench/internal/shapes"
)

// The gates. Those of Triton's throughput are with the settings.
const (
	staticFloor  = 0.95 // of the best static setting's throughput, in every cell
	staticClose  = 0.98 // of it, in staticShare of the cells
	staticShare  = 0.95
	staticP99    = 1.25 // times the best static setting's p99
	tritonP99    = 2.0  // times Triton's p99, with clients on the same cores
	tritonP99Pin = 1.0  // with cores of their own
	addSubP99Pin = 0.8  // for a model of microseconds
	oneCaller    = 0.98 // of Triton's throughput: nobody shares a batch
)

// A comparison is the ratios of Shoal's figures to another's: medians of the
// rounds' own ratios.
type comparison struct {
	Throughput float64 `json:"throughput"`
	Low        float64 `json:"throughput_low"` // 95 % confidence
	High       float64 `json:"throughput_high"`
	P50        float64 `json:"p50"`
	P99        float64 `json:"p99"`
	CPU        float64 `json:"cpu"`
}

// A result is what a cell came to.
type result struct {
	Cell      string `json:"cell"`
	Model     string `json:"model"`
	Setting   string `json:"setting"`
	Callers   int    `json:"callers"`
	Protocol  string `json:"protocol"`
	Generator string `json:"generator"`
	Pinned    bool   `json:"pinned,omitempty"` // servers and clients on cores of their own
	Commit    string `json:"commit"`
	Date      string `json:"date"`
	// Margin is how far the nearest gate is: below 1 it is missed.
	Margin float64  `json:"margin"`
	Missed []string `json:"missed,omitempty"`

	Shoal      measure.Sample  `json:"shoal"` // medians
	Static     *measure.Sample `json:"static,omitempty"`
	StaticName string          `json:"static_setting,omitempty"`
	Triton     *measure.Sample `json:"triton,omitempty"`
	LimitRows  int             `json:"limit_rows"`
	Limit      float64         `json:"limit_rows_per_second"` // of ONNX Runtime alone

	OfLimit  float64     `json:"of_limit"`
	ToStatic *comparison `json:"to_static,omitempty"`
	ToTriton *comparison `json:"to_triton,omitempty"`
}

// judge works out the ratios of a cell and holds them against the gates.
func judge(m measured, pinned bool) result {
	c := m.cell
	r := result{
		Cell: c.name(), Model: c.model.Name, Setting: c.setting.name, Callers: c.callers, Protocol: c.protocol, Generator: c.generatorName(),
		Pinned: pinned, Margin: math.Inf(1), Shoal: measure.Medians(m.shoal), LimitRows: m.limit[0].Rows,
	}
	var limits, shares []float64
	for i, l := range m.limit {
		limits, shares = append(limits, l.RowsPerSecond), append(shares, m.shoal[i].Throughput/l.RowsPerSecond)
	}
	r.Limit, r.OfLimit = report.Median(limits), report.Median(shares)
	if len(m.static) > 0 {
		static := measure.Medians(m.static)
		r.Static, r.StaticName, r.ToStatic = &static, m.chosen, compare(m.auto, m.static)
		r.ToStatic.takeSlices(m.slices)
		r.gate("throughput to static", r.ToStatic.Throughput/staticFloor)
		r.gate("p99 to static", staticP99/r.ToStatic.P99)
	}
	if len(m.triton) > 0 {
		triton := measure.Medians(m.triton)
		r.Triton, r.ToTriton = &triton, compare(m.shoal, m.triton)
		floor, p99 := tritonGates(c, pinned)
		r.gate("throughput to Triton", r.ToTriton.Throughput/floor)
		r.gate("p99 to Triton", p99/r.ToTriton.P99)
	}
	if math.IsInf(r.Margin, 1) {
		r.Margin = 1 // nothing to compare with
	}
	return r
}

// gate notes how far a gate is: margin below 1 is a miss.
func (r *result) gate(name string, margin float64) {
	r.Margin = min(r.Margin, margin)
	if margin < 1 {
		r.Missed = append(r.Missed, name)
	}
}

// tritonGates returns the least throughput and the highest p99, both as ratios to
// Triton's.
func tritonGates(c cell, pinned bool) (floor, p99 float64) {
	floor, p99 = c.setting.floor, tritonP99
	if c.callers == 1 {
		floor = oneCaller
	}
	switch {
	case pinned && c.model.Name == shapes.AddSub().Name:
		p99 = addSubP99Pin
	case pinned:
		p99 = tritonP99Pin
	}
	return floor, p99
}

// compare returns the medians of the ratios of what ran one after the other.
func compare(shoal, other []measure.Sample) *comparison {
	ratios := func(of func(measure.Sample) float64) []float64 {
		var all []float64
		for i, s := range shoal {
			all = append(all, of(s)/of(other[i]))
		}
		return all
	}
	throughput := ratios(func(s measure.Sample) float64 { return s.Throughput })
	low, high := report.Interval(len(throughput), func(rounds []int) float64 { return report.Median(report.Pick(throughput, rounds)) })
	return &comparison{
		Throughput: report.Median(throughput),
		Low:        low,
		High:       high,
		P50:        report.Median(ratios(func(s measure.Sample) float64 { return s.P50 })),
		P99:        report.Median(ratios(func(s measure.Sample) float64 { return s.P99 })),
		CPU:        report.Median(ratios(func(s measure.Sample) float64 { return s.CPU })),
	}
}

// takeSlices takes what slices tell better than rounds.
func (c *comparison) takeSlices(s [2][]measure.Sample) {
	r := compareSlices(s[0], s[1])
	c.Throughput, c.Low, c.High, c.CPU = r.value, r.low, r.high, compare(s[0], s[1]).CPU
}

// A ratio is what one side answered by what another did, with its 95 % confidence.
type ratio struct{ value, low, high float64 }

// compareSlices compares two sides that ran in slices of the same length, one after the
// other. A machine may be half as fast again from one slice to the next, so the half of
// the pairs whose ratios are furthest from the others does not count. But batches of the
// same callers and the same setting may be full for seconds and then half as large: where
// all that was answered clearly has another ratio, that counts.
func compareSlices(shoal, other []measure.Sample) ratio {
	middle := interval(len(shoal), func(pairs []int) float64 { return middleRatio(shoal, other, pairs) })
	total := interval(len(shoal), func(pairs []int) float64 { return totalRatio(shoal, other, pairs) })
	if middle.value < total.low || middle.value > total.high {
		return total
	}
	return middle
}

// interval works out a ratio of all of n pairs.
func interval(n int, of func(pairs []int) float64) ratio {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	r := ratio{value: of(all)}
	r.low, r.high = report.Interval(n, of)
	return r
}

// middleRatio is the geometric mean of the middle half of the pairs' ratios.
func middleRatio(shoal, other []measure.Sample, pairs []int) float64 {
	logs := make([]float64, len(pairs))
	for n, i := range pairs {
		logs[n] = math.Log(shoal[i].Throughput / other[i].Throughput)
	}
	slices.Sort(logs)
	logs = logs[len(logs)/4 : len(logs)-len(logs)/4]
	sum := 0.0
	for _, l := range logs {
		sum += l
	}
	return math.Exp(sum / float64(len(logs)))
}

// totalRatio is that of all that was answered.
func totalRatio(shoal, other []measure.Sample, pairs []int) float64 {
	var ours, theirs float64
	for _, i := range pairs {
		ours, theirs = ours+shoal[i].Throughput, theirs+other[i].Throughput
	}
	return ours / theirs
}

// sort puts the losers first.
func (r *results) sort() {
	slices.SortStableFunc(r.Cells, func(a, b result) int { return cmp.Compare(a.Margin, b.Margin) })
}

// missed returns the cells that missed a gate, and the gate of all together.
func (r results) missed() []string {
	var names []string
	for _, c := range r.Cells {
		for _, gate := range c.Missed {
			names = append(names, c.Cell+": "+gate)
		}
	}
	if share, cells := r.close(); cells > 0 && share < staticShare {
		names = append(names, fmt.Sprintf("%.0f %% of the cells have %v of the best static setting's throughput, want %.0f %%", 100*share, staticClose, 100*staticShare))
	}
	return names
}

// close returns the share of cells that are close to the best static setting, by
// their medians, and of how many.
func (r results) close() (share float64, cells int) {
	return r.share(func(c *comparison) bool { return c.Throughput >= staticClose })
}

// share returns the share of cells whose comparison with the best static setting
// is as wanted, and how many have one.
func (r results) share(wanted func(*comparison) bool) (share float64, cells int) {
	near := 0
	for _, c := range r.Cells {
		if c.ToStatic == nil {
			continue
		}
		cells++
		if wanted(c.ToStatic) {
			near++
		}
	}
	return float64(near) / max(1, float64(cells)), cells
}
