package result

import (
	"slices"
)

// The figures with an interval, besides percentiles.
const (
	FigureThroughput = "throughput" // rows a second
	FigureMean       = "mean"       // latency
)

// A Figure is a result with its 95 % interval, as far as this run can tell:
// runs on another day, or of a restarted server, may differ by more. Latencies
// are in nanoseconds, throughput is in rows per second.
type Figure struct {
	Name  string  `json:"name"` // FigureThroughput, FigureMean, or a percentile such as "p99"
	Value float64 `json:"value"`
	// Low and High are both zero when there was too little to tell.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Error is the relative standard error, Freedom its degrees of freedom.
	Error   float64 `json:"relative_error,omitempty"`
	Freedom float64 `json:"degrees_of_freedom,omitempty"`
}

// Known reports whether there is an interval.
func (f *Figure) Known() bool { return f.Freedom > 0 && f.Value > 0 }

// Figure returns the level's figure of this name; nil when it has none.
func (l *Level) Figure(name string) *Figure {
	for i := range l.Figures {
		if l.Figures[i].Name == name {
			return &l.Figures[i]
		}
	}
	return nil
}

// Percentiles returns those that are printed: four, and the one in the plan.
func Percentiles(p *Plan) []int {
	list := []int{50, 90, 95, 99}
	if p.Percentile > 0 && !slices.Contains(list, p.Percentile) {
		list = append(list, p.Percentile)
		slices.Sort(list)
	}
	return list
}
