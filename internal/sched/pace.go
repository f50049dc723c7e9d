package sched

import "math"

// pace is how fast the machine is: on a virtual machine whose neighbours come and go
// all batches, whatever their size, may take half as long again for some seconds. What
// was learned of sizes that do not run meanwhile stays true, times the pace.
type pace struct {
	factor float64 // how many times as long as in the table batches take now
	by     float64 // the logarithm of how many times as long as expected the last batch took
}

// observe learns how many times as long as expected a batch took, as a logarithm that
// varies with that variance, and returns what is left of it at the new pace. The pace changes
// only when two batches in a row are clearly longer or clearly shorter: one alone may
// have been delayed.
func (p *pace) observe(by, variance float64) float64 {
	both := 0.0
	switch {
	case by > 0 && p.by > 0:
		both = min(by, p.by)
	case by < 0 && p.by < 0:
		both = max(by, p.by)
	}
	if both != 0 {
		both *= max(0, 1-clearChange*clearChange*variance/(both*both))
	}
	p.factor *= math.Exp(both)
	p.by = by - both
	return p.by
}

// clearChange is how many standard deviations are more than chance, twice in a row.
const clearChange = 3
