package sched

import (
	"math"
	"time"
)

// Auto is the policy that needs no settings. It learns what batches cost and
// how fast callers send again, and chooses the size of batches from that.
// Callers that wait for each answer are divided among the instances, and on
// each instance into the number of groups that brings the most answers: one
// group waits while another runs. An instance waits for requests only while
// that saves more time than it takes.
type Auto struct {
	MaxRows int

	costs   costs
	returns returns
	density float64       // rows of a request
	times   [48]time.Time // of the latest requests
	seen    int           // how many there were
	runs    int
}

// NewAuto returns a policy for batches of up to maxRows rows.
func NewAuto(maxRows int) *Auto { return &Auto{MaxRows: maxRows, density: 1} }

// Needs implements Policy.
func (a *Auto) Needs() Needs { return Needs{Runs: true} }

// Observe implements Policy.
func (a *Auto) Observe(r Run) {
	if r.Failed || r.Requests == 0 {
		return
	}
	a.runs++
	took := r.End.Sub(r.Start)
	a.costs.observe(r.Rows, r.Busy, took)
	a.density += (float64(r.Rows)/float64(r.Requests) - a.density) / 16
	a.returns.observe(r.Batch.Requests, r.End, 2*a.fixed(r.Busy))
	for _, q := range r.Batch.Requests {
		a.times[a.seen%len(a.times)] = q.Queued
		a.seen++
	}
}

// Decide implements Policy.
func (a *Auto) Decide(v *View) Decision {
	switch {
	case v.Held != nil:
		return a.start(v)
	case v.Open == 0 && v.Idle == 0:
		return Decision{} // nothing is gained before an instance is idle
	}
	rows := min(v.Open+v.Rows, a.MaxRows)
	if v.Idle > 1 {
		rows = min(rows, a.split(v))
	}
	if a.loops(v) {
		rows = min(rows, a.target(v))
	} else {
		rows = a.fit(v, rows)
	}
	if rows < v.Open+v.Rows {
		return Decision{Fill: max(rows, v.Open)}
	}
	return Decision{Fill: a.MaxRows}
}

// fit returns how many of the waiting rows, at most most, a batch takes so that
// all requests together wait the least: small batches are answered sooner,
// large ones leave the instance free for later requests. From time to time it
// returns most, to learn what that costs.
func (a *Auto) fit(v *View, most int) int {
	if a.runs%explore == 0 || most <= 1 {
		return most
	}
	var sizes, times [24]float64
	n, cheapest := 0, math.Inf(1)
	for rows := most; rows >= 1 && n < len(sizes); rows = rows * 3 / 4 {
		cost := float64(a.costs.of(rows, v.Instances))
		if cost == 0 {
			return most
		}
		sizes[n], times[n] = float64(rows), cost
		cheapest = min(cheapest, cost/float64(rows))
		n++
	}
	c := float64(max(1, v.Instances))
	waiting := max(float64(most), float64(v.Open+v.Rows)/c)
	rate := a.arrivalRate() / c
	idle := max(0.05, 1-rate*cheapest)
	best, least := most, math.Inf(1)
	for i := range n {
		batches := waiting / sizes[i]
		work := batches * times[i]
		wait := waiting * times[i] * (batches + 1) / 2
		wait += (work - waiting*cheapest) * rate * work / idle // of requests that come meanwhile
		if wait < least {
			best, least = int(sizes[i]), wait
		}
	}
	return best
}

// explore is after how many batches the largest size is tried.
const explore = 64

// loops reports whether most requests come from callers that wait for their
// answers and then send again.
func (a *Auto) loops(v *View) bool {
	turn := a.returns.within(0.95)
	return a.returns.back > 0.5 && turn < a.fixed(v.Instances)
}

// fixed returns the cost of a batch without its rows.
func (a *Auto) fixed(busy int) time.Duration {
	return max(0, 2*a.costs.of(1, busy)-a.costs.of(2, busy))
}

// target returns the rows of a batch that bring the most answers per time.
func (a *Auto) target(v *View) int {
	callers := float64(v.Peak) * a.density / float64(max(1, v.Instances))
	turn := float64(a.returns.within(0.95))
	best, most := a.MaxRows, 0.0
	for groups := 1.0; groups <= 8; groups++ {
		rows := math.Ceil(callers / groups)
		if int(rows) > a.MaxRows {
			continue
		}
		cost := float64(a.costs.of(int(rows), v.Instances))
		if cost == 0 {
			break
		}
		// An instance that always has a batch answers rows/cost; each caller
		// waits for its batch and then for its turn.
		if rate := min(rows/cost, callers/(cost+turn)); rate > 1.005*most {
			best, most = int(rows), rate
		}
		if rows <= 1 {
			break
		}
	}
	return best
}

// split returns how many rows each of several idle instances takes, so that the
// last of the waiting rows is answered soonest.
func (a *Auto) split(v *View) int {
	best, least := v.Rows, time.Duration(0)
	for n := 1; n <= v.Idle; n++ {
		rows := (v.Rows + n - 1) / n
		cost := a.costs.of(rows, len(v.Running)+n)
		if cost == 0 {
			return v.Rows
		}
		if least == 0 || cost < least {
			best, least = rows, cost
		}
	}
	return best
}

// start decides whether a held batch starts.
func (a *Auto) start(v *View) Decision {
	h := v.Held
	if h.Ahead {
		return Decision{Start: !h.Open && h.LastRun > 0 && h.LastRun <= longestAhead}
	}
	start := Decision{Start: true}
	if !h.Open || v.Draining || h.Rows >= a.MaxRows {
		return start
	}
	if a.loops(v) {
		if wait, rows := a.awaitReturns(v); wait > 0 {
			return Decision{Wait: wait, More: rows}
		}
		return start
	}
	if wait := a.balance(v); wait > 0 {
		return Decision{Wait: wait, More: 1} // each further request makes the wait shorter
	}
	return start
}

// awaitReturns returns how long a held batch waits for callers that are about
// to return, and for how many rows; 0 when waiting does not pay.
func (a *Auto) awaitReturns(v *View) (time.Duration, int) {
	h := v.Held
	away := float64(v.Peak-v.InFlight) * a.density
	need := min(a.target(v)-h.Rows, int(away))
	if need <= 0 {
		return 0, 0
	}
	busy := len(v.Running) + 1
	saves := a.costs.of(h.Rows, busy) + a.costs.of(need, busy) - a.costs.of(h.Rows+need, busy)
	wait := a.returns.within(0.95*float32(need)/float32(away)) - v.Now.Sub(a.returns.last)
	if wait <= 0 || wait > saves {
		return 0, 0
	}
	return wait, need
}

// balance returns how long a held batch waits because the next one, which
// starts when another instance ends, would be larger: batches that start evenly
// spaced keep requests waiting the least.
func (a *Auto) balance(v *View) time.Duration {
	if len(v.Running) == 0 {
		return 0
	}
	rate := a.arrivalRate() // rows per nanosecond
	rows := float64(v.Held.Rows)
	cost := float64(a.costs.of(v.Held.Rows, len(v.Running)+1))
	next := math.Inf(1)
	for i := range v.Running {
		r := &v.Running[i]
		next = min(next, max(0, float64(r.Start.Add(a.costs.of(r.Rows, len(v.Running))).Sub(v.Now))))
	}
	if next >= cost || rate == 0 {
		return 0
	}
	c := float64(v.Instances)
	one, all := float64(a.costs.of(1, v.Instances)), float64(a.costs.of(a.MaxRows, v.Instances))
	row := max(1, (all-one)/float64(max(1, a.MaxRows-1)))
	fixed := max(0, one-row)
	load := min(0.99, rate*row/c)
	steady := min(float64(a.MaxRows), rate*fixed/(c*(1-load)))
	price := steady / c * load / (1 - load) / (1 + 2*row*rate) // of idling, when there is little to spare
	have := rows*float64(v.Idle+1) + price
	if have >= rate*next {
		return 0
	}
	return time.Duration(next - have/rate)
}

// arrivalRate returns the recent rows per nanosecond.
func (a *Auto) arrivalRate() float64 {
	if a.seen < len(a.times) {
		return 0
	}
	oldest := a.times[a.seen%len(a.times)]
	newest := a.times[(a.seen-1)%len(a.times)]
	return a.density * float64(len(a.times)-1) / max(1, float64(newest.Sub(oldest)))
}
