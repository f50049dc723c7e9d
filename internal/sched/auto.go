package sched

import (
	"math"
	"time"
)

// Auto is the policy that needs no settings. It learns what batches cost and how
// fast callers send again, and chooses the size of batches by that. Callers that
// wait for each answer are divided among the instances, and on each into as many
// groups as bring the most answers: one group waits while another runs. An instance
// waits for requests only while that saves more time than it takes.
type Auto struct {
	MaxRows int

	horizon time.Duration // requests so long after an answer count as returns, at least
	costs   costs
	returns returns
	density float64 // rows of a request
	arrived arrivals
	runs    int
	took    float64 // by a batch, in nanoseconds
	counted counted
	groups  groupings
	contest contest
	learned learned
	ceiling ceiling
	alone   alone
}

// learned is what follows from the costs and returns, kept because it changes
// slowly and is needed for every batch.
type learned struct {
	runs    int           // when it was found
	turn    time.Duration // by which most who return have
	half    time.Duration // by which half of them have
	latest  time.Duration // by which nearly all have
	awaited time.Duration // by which most have while an instance waits for them
	loops   bool          // most answers are soon followed by a request
	goal    goal
}

// A goal is the best size of batches for a number of callers and instances.
type goal struct {
	callers, instances, rows int
	grouping                 int  // the index of the number of groups
	trial                    bool // such batches were not seen of late, and may be better than they were
}

// counted is how many callers there were, the last time and the time before it, when
// all of them had a request in flight: those who return do so much sooner than the last
// answer was ago.
type counted struct{ callers, before, runs int }

// NewAuto returns a policy for batches of up to so many rows.
func NewAuto(maxRows int) *Auto { return &Auto{MaxRows: maxRows, density: 1} }

// Needs implements Policy.
func (a *Auto) Needs() Needs { return Needs{Runs: true} }

// Observe implements Policy.
func (a *Auto) Observe(r Run) {
	if r.Failed || r.Requests == 0 {
		return
	}
	a.ceiling.see(r.InFlight)
	if !a.alone.learnsFrom(&r) {
		a.returns.skip(r.End)
		a.arrived.skip(r.Batch.Requests[0], r.Rows)
		return
	}
	a.runs++
	took := r.End.Sub(r.Start)
	a.costs.observe(r.Rows, r.Busy, took)
	a.took += (float64(took) - a.took) / float64(min(a.runs, 16))
	if a.learned.latest > 0 && r.End.Sub(a.returns.last) > 2*a.learned.latest {
		a.counted = counted{r.InFlight, a.counted.callers, a.runs}
	}
	idle := max(0, r.Start.Sub(r.LastEnd))
	if g := &a.learned.goal; g.callers > 0 && !g.trial && !r.LastEnd.IsZero() && idle < callersPaused*a.learned.latest {
		a.groups.observe(g, float64(r.Rows), idle)
	}
	a.density += (float64(r.Rows)/float64(r.Requests) - a.density) / 16
	waited := r.Start.Sub(r.Since) >= took/64 // a request that comes just when a batch starts tells nothing
	a.returns.observe(r.Batch.Requests, r.Since, r.End, waited, max(a.horizon, time.Duration(4*a.took)))
	a.arrived.observe(r.Batch.Requests, r.Rows, r.End)
	if a.contest.observe(r.Rows, r.End, time.Duration(a.took)) {
		a.learned.goal = goal{}
	}
	since := a.runs - a.learned.runs
	if since >= min(refresh, a.runs/8+1) || a.learned.goal.trial && since >= trialRuns {
		a.learn()
	}
}

// callersPaused tells pauses of the callers, which do not depend on how they are divided, from
// waits for them: an instance was idle for so many times as long as nearly all take to return.
const callersPaused = 4

// refresh is after how many batches what was learned is found anew.
const refresh = 16

// trialRuns is for how many batches a size is tried that was not seen for long.
const trialRuns = 2

// forgetWaits is after how many batches without a wait it is forgotten how long callers
// took to return during one.
const forgetWaits = 256

func (a *Auto) learn() {
	l := &a.learned
	l.runs, l.goal = a.runs, goal{}
	a.groups.fade()
	a.costs.draw() // also with the last batches, which may be those of a trial
	l.turn, l.half = a.returns.all.within(0.9), a.returns.all.within(0.5)
	l.latest = a.returns.all.within(0.99)
	// What was not seen for long is tried again.
	l.awaited = a.returns.waiting().within(0.85) * time.Duration(forgetWaits-min(a.returns.age, forgetWaits)) / forgetWaits
	l.loops = a.returns.back > 0.5
}

// shortRun is a run that is no longer than a few looks at the sockets.
const shortRun = 50 * time.Microsecond

// Decide implements Policy.
func (a *Auto) Decide(v *View) Decision {
	switch {
	case v.Held != nil:
		return a.start(v)
	case v.Idle == 0 && v.Open == 0:
		return a.ahead(v)
	case v.Rows+v.Open == 0:
		return a.expect(v)
	}
	rows := v.Open + v.Rows
	d := Decision{Fill: a.MaxRows, Start: v.Requests >= a.callers(v)} // then nobody is waited for
	if rows == 1 {
		return d
	}
	take, loops := min(rows, a.MaxRows), a.loops(v)
	if v.Idle > 1 && !loops {
		take = min(take, a.split(v))
	}
	if loops {
		take = min(take, a.goal(v))
	} else {
		take = a.fit(rows, take, v.Instances)
	}
	if take < rows {
		d.Fill = max(take, v.Open)
	}
	return d
}

// ahead decides on requests that come while every instance is busy: they stay in
// the queue until they make a whole batch, whose inputs can be got ready, and where
// they may time out or be overtaken until an instance is idle.
func (a *Auto) ahead(v *View) Decision {
	if v.KeepQueued || v.Formed > 0 || v.Instances > 1 {
		return Decision{}
	}
	rows := a.MaxRows
	if a.loops(v) {
		rows = min(a.goal(v), a.rest(v))
	}
	if v.Rows < rows {
		return Decision{More: rows - v.Rows}
	}
	if !a.loops(v) {
		rows = a.fit(v.Rows, rows, v.Instances)
	}
	return Decision{Fill: rows}
}

// rest returns how many rows the callers have that are not in the running batch, if
// those are prepared as soon as they are all there: while a device computes that
// costs no time, and both batches take no longer than one of all callers with the
// wait for them.
func (a *Auto) rest(v *View) int {
	if !v.Overlaps || v.Ahead > 0 || len(v.Running) != 1 {
		return a.MaxRows
	}
	running, all := v.Running[0].Rows, int(math.Ceil(float64(a.callers(v))*a.density))
	rest := all - running
	if rest <= 0 || all > a.MaxRows || a.costs.of(running, 1)+a.costs.of(rest, 1) > a.costs.of(all, 1)+a.learned.awaited {
		return a.MaxRows
	}
	return rest
}

// start decides whether a held batch starts.
func (a *Auto) start(v *View) Decision {
	h := v.Held
	if h.Ahead {
		return Decision{Start: !h.Open && worthAhead(h)}
	}
	start := Decision{Start: true}
	switch {
	case !h.Open, v.Draining, h.Rows >= a.MaxRows, h.Requests >= a.callers(v):
		return start
	case h.LastRun < shortRun:
		return Decision{Wait: Yield, Start: true}
	}
	var wait time.Duration
	more := 1 // each that comes makes the wait shorter
	if a.loops(v) {
		wait, more = a.awaitReturns(v, h.Rows, v.InFlight, v.Now.Sub(h.Since), v.Now.Sub(a.returns.last))
	} else {
		wait = max(a.balance(v), a.awaitBurst(v))
	}
	if !h.Expires.IsZero() {
		wait = min(wait, h.Expires.Sub(v.Now)) // none waits for others beyond its own time
	}
	if wait <= 0 {
		return start
	}
	return Decision{Wait: wait, More: more}
}

// loops reports whether requests come for the most part from callers that wait
// for their answers and then send again.
func (a *Auto) loops(v *View) bool {
	return a.learned.loops && (float64(a.learned.turn)*float64(v.Instances) < 0.45*a.took || v.Varies < steady || a.counts(v))
}

// counts reports whether the callers can be counted although some of them, or those of one
// instance, return late.
func (a *Auto) counts(v *View) bool { return v.Instances > 1 && a.ceiling.reached() }

// callers returns how many callers there are: the most that had requests in flight of
// late, or as many as were counted, if some have clearly left.
func (a *Auto) callers(v *View) int {
	most := v.Peak
	if a.counts(v) {
		most = max(most, a.ceiling.highest())
	}
	if n := max(v.InFlight, a.counted.callers, a.counted.before); 8*n < 7*most && a.learned.loops && a.runs-a.counted.runs <= 2*v.Instances {
		return n
	}
	return most
}

// steady is by how much the number of requests in flight varies at most while they
// come from the same callers.
const steady = 0.02

// expect decides, while nobody waits and an instance is idle, for how many rows and how long
// the first request waits.
func (a *Auto) expect(v *View) Decision {
	if !a.loops(v) {
		return Decision{}
	}
	rows := max(1, int(a.density+0.5))
	wait, more := a.awaitReturns(v, rows, v.InFlight+1, 0, math.MaxInt64)
	return Decision{Wait: wait, More: rows + more}
}

// awaitReturns returns how long a batch of so many rows waits for callers that are about to
// return, while some have a request in flight, and for how many rows; 0 when it does not pay.
// It has waited for a time, and the last answer was a time ago.
func (a *Auto) awaitReturns(v *View, rows, inFlight int, waited, answered time.Duration) (time.Duration, int) {
	away := float64(a.callers(v)-inFlight) * a.density
	need := min(a.goal(v)-rows, int(away))
	if need <= 0 {
		return 0, 0
	}
	busy := len(v.Running) + 1
	all := a.costs.of(rows+need, busy)
	saves := a.costs.of(rows, busy) + a.costs.of(need, busy) - a.costs.hope(rows+need, busy)
	// If the first of them came late, something delayed all of them: the others are
	// expected as soon after it as usual.
	since := min(answered, waited+a.returns.all.within(0.1))
	last := a.returns.all.within(0.99) - since
	if a.learned.goal.trial { // to learn what it brings
		return last, need
	}
	if float64(a.goal(v)*v.Instances) > float64(a.callers(v))*a.density-1 && (v.Instances > 1 || saves > all/savedByAll) {
		// Batches of all callers: those who come too late for one have nobody to share
		// theirs with, and a caller may be late by the run of another instance.
		most := 2 * all
		if v.Instances == 1 {
			most = all / 2
		}
		return max(0, min(lateReturn*a.returns.all.within(0.99)-since, most-waited)), need
	}
	saves -= waited
	if expect := a.returns.waiting().within(float32(need)/float32(away+1)) - since; expect > saves {
		return 0, 0
	}
	return min(saves, last), need
}

// lateReturn is how many times as long as nearly all take to return a batch of all
// callers waits for them. A single instance does so if that saves more than one part of
// savedByAll of the time that the batch takes.
const (
	lateReturn = 4
	savedByAll = 16
)

// goal returns the rows of a batch that bring the most answers in a given time, as
// long as callers send again after their answers.
func (a *Auto) goal(v *View) int {
	n := a.callers(v)
	if g := &a.learned.goal; 16*max(g.callers-n, n-g.callers) > g.callers || g.instances != v.Instances {
		*g = a.target(v)
	}
	return a.learned.goal.rows
}

// target finds the goal, or one that is tried.
func (a *Auto) target(v *View) goal {
	g := goal{callers: a.callers(v), instances: v.Instances, rows: a.MaxRows}
	a.groups.begin(g.callers, g.instances)
	callers := float64(g.callers) * a.density / float64(max(1, v.Instances))
	// Small groups must be clearly better: while an instance waits, its core reads
	// and writes for others, which interrupts runs otherwise.
	best, most, tried := g, 0.0, 0
	var all [len(groupNumbers)]goal
	var rates, possible [len(groupNumbers)]float64
	for i, n := range groupNumbers {
		g.grouping, g.rows = i, int(math.Ceil(callers/n))
		if n != math.Trunc(n) { // some wait for another batch anyway
			g.rows = round(g.rows)
		}
		g.rows = min(a.MaxRows, g.rows)
		if tried > 0 && all[tried-1].rows == g.rows {
			continue
		}
		cost := a.costs.of(g.rows, v.Instances)
		if cost == 0 {
			return best
		}
		r := a.rate(&g, callers, cost) / (1 + a.costs.doubt(g.rows, v.Instances))
		if v.Instances == 1 && n != math.Trunc(n) {
			r /= uneven
		}
		all[tried], rates[tried], possible[tried] = g, r, 0
		if a.costs.known(g.rows, v.Instances) {
			possible[tried] = min(float64(g.rows), callers) / float64(cost)
		}
		tried++
		if r > clearly*most {
			best, most = g, r
		}
		if g.rows == 1 {
			break
		}
	}
	// Most trials are in vain, and on GPUs the first batch of a size is slow. So they
	// must promise much, and there are trials of fewer rows only where an instance
	// waits for all callers and nothing is computed meanwhile. On processors of this
	// machine a size that never ran need not promise as much: costs have steps.
	for _, g := range all[:tried] {
		promise := promising
		if v.Computes && !a.costs.known(g.rows, v.Instances) {
			promise = firstPromising
		} else if g.rows < best.rows && (float64(best.rows) < callers || v.Overlaps) {
			continue
		}
		if g.rows != best.rows && a.rate(&g, callers, a.costs.hope(g.rows, v.Instances)) > promise*most {
			g.trial = true
			return g
		}
	}
	if v.Computes && v.Instances > 1 {
		best = a.contest.choose(best, all[:tried], rates[:tried], possible[:tried])
	}
	return best
}

// promising is how many times as many rows a size must promise to be tried, and
// firstPromising the same of one that never ran. They must be less than 4/3, which is what
// twice the rows of the best size promise (costTable.least).
const promising, firstPromising = 1.2, 1.1

// clearly is how many times as much a group must bring to be preferred to a larger one.
const clearly = 1.02

// uneven is how many times as much batches of a single instance must bring that do not
// divide the callers evenly: some of them wait for another batch now and then, which
// makes their latencies differ.
const uneven = 1.05

// rate returns how many rows an instance answers in a nanosecond with batches of a
// size, if a full one takes cost and so many callers send to the instance.
func (a *Auto) rate(g *goal, callers float64, cost time.Duration) float64 {
	rows := min(float64(g.rows), callers)
	// An instance whose batch has ended has the next one at once if the callers in no
	// batch make one. If not, it waits for a part of those who have their answers.
	part := 1 - float64(g.instances)*(callers/rows-1)
	idle := time.Duration(0)
	if part > 0 {
		idle = min(a.learned.awaited, a.returns.waiting().within(float32(0.85*part)))
	}
	idle, filled := a.groups.expect(g.grouping, idle)
	if filled < 1 {
		cost = time.Duration(float64(cost) * float64(a.costs.mean(filled*rows, g.instances)) / float64(a.costs.mean(rows, g.instances)))
	}
	rate := filled * rows / float64(cost+idle)
	if rows < callers {
		rate = min(rate, callers/float64(cost+a.learned.half)) // no more come back while it runs
	}
	return rate
}

// split returns how many rows each of several idle instances takes, so that the
// last of the rows that wait is answered soonest.
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

// Round numbers of rows are those below 4, and 4, 5, 6 or 7 times a power of two. Costs often
// have steps there: models are padded to such sizes, and matrix products are made of blocks.

// unit returns the distance of the round numbers near rows.
func unit(rows int) int {
	u := 1
	for rows >= 8*u {
		u *= 2
	}
	return u
}

// round returns the round number nearest to rows.
func round(rows int) int {
	u := unit(rows)
	return u * int(math.RoundToEven(float64(rows)/float64(u)))
}

// nextRound returns the largest round number below rows.
func nextRound(rows int) int {
	u := unit(rows - 1)
	return (rows - 1) / u * u
}
