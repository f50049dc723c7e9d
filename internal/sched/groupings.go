package sched

import "time"

// groupNumbers are the numbers of groups that the callers of an instance may be
// divided into. Many small ones are for models whose batches cost more than their rows
// alone. With less than two, an instance waits for a part of the callers only.
var groupNumbers = [...]float64{1, 4. / 3, 8. / 5, 2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 32, 64, 128}

// groupings are what was seen while the callers were divided into each number of
// groups. It is used in place of what the times of returns let expect: those are of
// callers of one batch, and say little of how the batches of several groups follow each other.
type groupings struct {
	callers, instances int // for which it was seen
	rows               int // of the batches that are formed now
	batches            int // of these that were seen
	seen               [len(groupNumbers)]grouping
}

// A grouping has the means of what was seen with one number of groups.
type grouping struct {
	idle   float64 // nanoseconds from the end of a batch to the start of the next
	filled float64 // rows of a batch, as a part of the goal
	weight float64 // batches
}

// groupMemory is how many batches a grouping remembers, and groupFading what is left of
// that each time a goal is found. What is expected without any counts as much as
// groupPrior batches.
const (
	groupMemory = 32
	groupFading = 0.98
	groupPrior  = 4
)

// begin forgets what was seen with other callers.
func (g *groupings) begin(callers, instances int) {
	if 4*max(g.callers-callers, callers-g.callers) > g.callers || instances != g.instances {
		*g = groupings{callers: callers, instances: instances}
	}
}

// observe learns from a batch that an instance ran so long after the one before. The
// first ones of a goal are left out: those before them were formed for another.
func (g *groupings) observe(goal *goal, rows float64, idle time.Duration) {
	if goal.rows != g.rows {
		g.rows, g.batches = goal.rows, 0
	}
	if g.batches++; g.batches <= 4*goal.instances+2 {
		return
	}
	s := &g.seen[goal.grouping]
	s.weight = min(s.weight+1, groupMemory)
	s.idle += (float64(idle) - s.idle) / s.weight
	s.filled += (rows/float64(goal.rows) - s.filled) / s.weight
}

// fade lets what is not seen again be forgotten.
func (g *groupings) fade() {
	for i := range g.seen {
		g.seen[i].weight *= groupFading
	}
}

// expect returns how long an instance is idle between batches and which part of the
// goal they have, if it is expected to be idle for so long.
func (g *groupings) expect(grouping int, idle time.Duration) (time.Duration, float64) {
	s := &g.seen[grouping]
	total := groupPrior + s.weight
	return time.Duration((groupPrior*float64(idle) + s.weight*s.idle) / total), min(1, (groupPrior+s.weight*s.filled)/total)
}
