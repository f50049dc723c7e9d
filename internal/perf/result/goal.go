package result

import (
	"time"
)

// A GoalResult is the outcome of a goal on a level.
type GoalResult struct {
	Goal string `json:"goal"`
	// Value is nanoseconds, a share, or a number a second.
	Value float64 `json:"value"`
	Met   bool    `json:"met"`
	Shown string  `json:"-"`
}

// GoalsMet reports whether every level reached every goal.
func (r *Result) GoalsMet() bool {
	for i := range r.Levels {
		for _, g := range r.Levels[i].Goals {
			if !g.Met {
				return false
			}
		}
	}
	return true
}

// A Capacity is the result of a search for the highest rate.
type Capacity struct {
	Goal string `json:"goal"`
	// Rate is the highest rate, in requests a second, that was measured at length
	// and met the goal; 0 when none did.
	Rate   float64 `json:"rate"`
	Probes []Probe `json:"probes"` // in their order
}

// Missed returns the lowest rate above Rate that was tried and missed the goal; 0 when
// there was none. The capacity is between the two.
func (c *Capacity) Missed() float64 {
	low := 0.0
	for _, p := range c.Probes {
		if !p.Passed && p.Rate > c.Rate && (low == 0 || p.Rate < low) {
			low = p.Rate
		}
	}
	return low
}

// A Probe is a short measurement of a search.
type Probe struct {
	Rate    float64       `json:"rate"`
	Took    time.Duration `json:"took_ns"`
	Long    bool          `json:"long,omitempty"` // the measurement that confirms
	Passed  bool          `json:"passed"`
	Results []GoalResult  `json:"slo"`
	Why     string        `json:"why,omitempty"` // the reason when it is not the goal
}
