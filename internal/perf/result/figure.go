package result

import (
	"slices"
)

// The figures that an interval is told of, besides percentiles.
const (
	FigureThroughput = "throughput" // rows a second
	FigureMean       = "mean"       // latency
)

// A Figure is a result with the interval in which the true one lies in 95 of 100
// cases, as far as the moments of this run tell: runs on another day, or of a
// server started anew, may differ by more. Latencies are in nanoseconds,
// throughput is in rows a second.
type Figure struct {
	Name  string  `json:"name"` // FigureThroughput, FigureMean, or a percentile such as "p99"
	Value float64 `json:"value"`
	// Low and High are both zero when there was too little to tell.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Error is the standard error of the value as a share of it, and Freedom how
	// many degrees of freedom it was estimated with.
	Error   float64 `json:"relative_error,omitempty"`
	Freedom float64 `json:"degrees_of_freedom,omitempty"`
}

// Known says whether there is an interval.
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

// percentiles returns those that are printed: four, and the one judged by.
func Percentiles(p *Plan) []int {
	list := []int{50, 90, 95, 99}
	if p.Percentile > 0 && !slices.Contains(list, p.Percentile) {
		list = append(list, p.Percentile)
		slices.Sort(list)
	}
	return list
}
