package sched

import (
	"math"
	"time"
)

// fit returns how many of the waiting rows a batch takes, at most so many, where
// requests do not depend on answers. All of them are to wait the least: small batches
// are answered sooner, large ones leave the instances free for those who come next. If
// a batch of all is short, it is not divided: to decide that takes more time than it saves.
func (a *Auto) fit(waiting, most, instances int) int {
	if most <= 1 || a.costs.of(min(waiting, most), instances) < shortRun {
		return most
	}
	var sizes, times [64]float64
	n, cheapest := 0, math.Inf(1)
	for rows := most; rows >= 1 && n < len(sizes); rows = nextRound(rows) {
		cost := float64(a.costs.of(rows, instances))
		if cost == 0 {
			return most
		}
		sizes[n], times[n] = float64(rows), cost
		cheapest = min(cheapest, cost/float64(rows))
		n++
	}
	// If the machine delayed the last batches of a size, it seems expensive until it is
	// tried again.
	known := cheapest
	for i := range n {
		if hope := float64(a.costs.hope(int(sizes[i]), instances)); worthTrying*hope < known*sizes[i] {
			times[i], cheapest = hope, min(cheapest, hope/sizes[i])
		}
	}
	c := float64(max(1, instances))
	rate := a.arrived.rate / c
	idle := max(0.05, 1-rate*cheapest) // the rate is not known better
	best, least := most, math.Inf(1)
	for i := range n {
		// The batches start one after the other, as the instances become idle.
		batches := float64(waiting) / sizes[i]
		wait := float64(waiting) * times[i] * (1 + (max(1, batches)-1)/(2*c))
		// What they take beyond the cheapest delays those who come until none waits.
		work := batches * times[i]
		wait += delayWeight * (work - float64(waiting)*cheapest) * rate * work / (idle * c)
		if wait < least {
			best, least = int(sizes[i]), wait
		}
	}
	return best
}

// worthTrying is how many times as cheap a row must promise to be in batches of a size
// that was not seen for long. delayWeight is how much the delay of those who come later
// counts. Both are the best of some that were simulated.
const (
	worthTrying = 1.2
	delayWeight = 1.25
)

// balance returns how long a held batch waits because the next one, which starts
// when another instance ends, would be larger than it: batches that start evenly
// spaced keep requests waiting the least.
func (a *Auto) balance(v *View) time.Duration {
	if len(v.Running) == 0 {
		return 0
	}
	rate := a.arrived.rate // rows in a nanosecond
	rows, busy := float64(v.Held.Rows), len(v.Running)+1
	cost := float64(a.costs.of(v.Held.Rows, busy))
	next := math.Inf(1)
	for i := range v.Running {
		r := &v.Running[i]
		next = min(next, max(0, float64(r.Start.Add(a.costs.of(r.Rows, busy)).Sub(v.Now))))
	}
	if next >= cost || rate == 0 {
		return 0
	}
	c := float64(v.Instances)
	large := max(2, min(float64(a.MaxRows), 2*a.arrived.batch))
	one := float64(a.costs.of(1, v.Instances))
	row := max(1, (float64(a.costs.mean(large, v.Instances))-one)/(large-1))
	fixed := max(0, one-row)
	load := min(0.99, rate*row/c)
	usual := min(float64(a.MaxRows), rate*fixed/(c*(1-load)))
	price := 2 * usual / c * load / (1 - load) / (1 + 2*row*rate) // of idling, when there is little to spare
	have := rows*float64(v.Idle+1) + price
	if have >= rate*next {
		return 0
	}
	return time.Duration(next - have/rate)
}

// awaitBurst returns how long a held batch waits because requests often come together
// and the next is probably near: a part of the time that it saves in the same batch.
func (a *Auto) awaitBurst(v *View) time.Duration {
	h, busy := v.Held, len(v.Running)+1
	next := max(1, int(a.density+0.5))
	rows := h.Rows + next
	if rows > a.MaxRows || v.Idle > 1 { // then the next is in another batch
		return 0
	}
	saves := a.costs.of(h.Rows, busy) + a.costs.of(next, busy) - a.costs.of(rows, busy)
	wait := saves / time.Duration(burstPart*h.Requests*(v.Idle+1))
	age := v.Now.Sub(h.Newest)
	if wait < leastWait || age >= wait || a.arrived.gaps.chance(age, age+wait) <= 0.5 || a.fit(rows, rows, v.Instances) < rows {
		return 0
	}
	return wait
}

const (
	burstPart = 4                     // requests wait for the next for such a part of what it saves
	leastWait = 50 * time.Microsecond // a shorter wait costs more than it brings
)
