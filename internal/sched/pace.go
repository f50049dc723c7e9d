package sched

import "math"

// pace is how fast the machine is: on a virtual machine whose neighbours come and go
// all batches, whatever their size, may take half as long again for some seconds. What
// was learned of sizes that do not run meanwhile stays true, times the pace.
type pace struct {
	factor float64 // how many times as long as in the table batches take now
	by     float64 // the logarithm of how many times as long as expected the last batch took
	step   float64 // the logarithm of the last change, while it may turn out to be none
	sum    float64 // of the batches since then
	since  int     // how many they are
}

// observe learns how many times as long as expected a batch took, as a logarithm that
// varies with that variance, and returns what is left of it at the new pace. The pace changes
// only when two batches in a row are clearly longer or clearly shorter: one alone may
// have been delayed. If the next few fit the pace before it better, both were, and it changes
// back. What makes up for delays is not always clear: what is left of them would add up, and
// sizes that do not run would seem to become more expensive, so the pace is forgotten slowly.
func (p *pace) observe(by, variance float64) float64 {
	change := p.undo(by)
	undone := change != 0
	switch {
	case undone:
	case by > 0 && p.by > 0:
		change = clearPart(min(by, p.by), variance)
	case by < 0 && p.by < 0:
		change = clearPart(max(by, p.by), variance)
	}
	if change != 0 && !undone {
		p.step, p.sum, p.since = p.step+change, 0, 0
	}
	if change != 0 {
		p.factor *= math.Exp(change)
	}
	p.factor += (1 - p.factor) / paceMemory
	p.factor = min(max(p.factor, 1/mostPace), mostPace)
	p.by = by - change
	return p.by
}

// undo returns what takes the last change back, if it is to be: 0 if not.
func (p *pace) undo(by float64) float64 {
	if p.step == 0 {
		return 0
	}
	p.sum += by
	if p.since++; p.since < stepBatches {
		return 0
	}
	step := p.step
	p.step = 0
	if 2*p.sum*step > -stepBatches*step*step {
		return 0
	}
	return -step
}

// clearPart returns the part of a deviation that is not chance.
func clearPart(by, variance float64) float64 {
	return by * max(0, 1-clearChange*clearChange*variance/(by*by))
}

const (
	clearChange = 3    // how many standard deviations are more than chance, twice in a row
	stepBatches = 4    // after so many batches a change is taken back, or stays
	paceMemory  = 4096 // for how many batches the pace is remembered
	mostPace    = 1e8  // so that no cost is too large for a time
)
