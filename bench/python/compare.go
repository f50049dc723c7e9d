package main

import (
	"fmt"
	"slices"
	"strings"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/report"
)

// A sampleSet is what each server did in one round of a row.
type sampleSet map[string]measure.Sample

// of returns a figure of a sample. All the processes of a server count.
func (f figure) of(s measure.Sample) float64 {
	switch f {
	case throughput:
		return s.Throughput
	case p50:
		return s.P50
	}
	return s.CPU + s.WorkerCPU
}

// holds says whether a ratio is within the floor.
func (f floor) holds(ratio float64) bool {
	if f.figure == throughput {
		return ratio >= f.limit
	}
	return ratio <= f.limit
}

func (f floor) sign() string {
	if f.figure == throughput {
		return ">="
	}
	return "<="
}

// A verdict is what all rounds say of a floor: the median of their own ratios,
// because the machine's speed drifts from round to round.
type verdict struct {
	Against string  `json:"against"`
	Figure  figure  `json:"figure"`
	Ratio   float64 `json:"ratio"`
	Least   float64 `json:"ratio_least"`
	Most    float64 `json:"ratio_most"`
	Sign    string  `json:"sign"` // how the ratio stands to the limit when it passes
	Limit   float64 `json:"limit"`
	Pass    bool    `json:"pass"`
}

// A comparison is what all rounds of a row came to.
type comparison struct {
	Row      string      `json:"row"`
	Callers  int         `json:"callers"`
	Servers  []string    `json:"servers"` // in the order of the tables
	Medians  sampleSet   `json:"medians"`
	Verdicts []verdict   `json:"verdicts"`
	Rounds   []sampleSet `json:"rounds"`
}

func compare(r row, rounds []sampleSet) comparison {
	c := comparison{Row: r.name(), Callers: r.callers, Servers: r.servers, Medians: make(sampleSet), Rounds: rounds}
	for _, name := range r.servers {
		var all []measure.Sample
		for _, set := range rounds {
			all = append(all, set[name])
		}
		c.Medians[name] = measure.Medians(all)
	}
	for _, f := range r.floors {
		var ratios []float64
		for _, set := range rounds {
			ratios = append(ratios, f.figure.of(set[shoal])/f.figure.of(set[f.against]))
		}
		m := report.Median(ratios)
		c.Verdicts = append(c.Verdicts, verdict{f.against, f.figure, m, slices.Min(ratios), slices.Max(ratios), f.sign(), f.limit, f.holds(m)})
	}
	return c
}

// line is one round for somebody who waits.
func (s sampleSet) line(r row) string {
	var parts []string
	for _, name := range r.servers {
		parts = append(parts, fmt.Sprintf("%s %.0f/s %.0f us CPU %.0f", name, throughput.of(s[name]), p50.of(s[name]), cpu.of(s[name])))
	}
	return strings.Join(parts, " | ")
}
