// Package sim runs a batching policy in virtual time: the code that decides in a
// server decides here, without goroutines and as fast as the processor goes. The
// same setup gives the same result.
package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/sched"
)

// A Setup says what is simulated.
type Setup struct {
	Policy    sched.Policy
	MaxRows   int
	Instances int
	// Cost is how long a batch of so many rows takes while so many batches run,
	// itself included.
	Cost func(rows, busy int) time.Duration
	// Spread is the relative standard deviation of that.
	Spread float64
	// Slow is how many times as long all batches take half of the time: in every
	// second span of Dwell. 0 is for never.
	Slow  float64
	Dwell time.Duration
	// Wander is the relative standard deviation of the machine's speed, which changes all
	// the time and forgets what it was within Dwell.
	Wander float64
	// Cold is how many of the first batches take 1.5 times as long.
	Cold  int
	Load  Load
	Cores Cores
	// Requests is how many are answered and counted, after Warmup others.
	Requests, Warmup int
	Seed             uint64
}

// A Result is what came of a simulation.
type Result struct {
	Batches    int
	MeanBatch  float64 // rows
	Throughput float64 // requests answered in a second; if callers pause, between the pauses, and with the warm-up
	Mean       time.Duration
	P50, P99   time.Duration
	// Digest is a hash of all batches: when each started, with which requests.
	Digest uint64
}

// origin is when virtual time begins.
var origin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A run is a simulation under way.
type run struct {
	Setup
	source    source
	costs     *rand.Rand
	speeds    *rand.Rand // apart, so that the speed is the same under every policy
	arrivals  *rand.Rand // apart, so that requests come at the same times under every policy
	batcher   *sched.Virtual
	now       time.Duration
	events    events
	cores     processors
	requests  []*infer.Request // by their place here, which Version says
	callers   []int            // who sent them
	numbers   []uint64         // how many were sent before
	unused    []int
	sent      uint64
	answered  int
	busy      int
	wandered  time.Duration // until when the speed has wandered
	speed     float64       // by how much, as a logarithm
	started   int           // batches
	rows      int
	from      time.Duration // when counting began
	between   between
	latencies []time.Duration
	result    Result
}

// Run simulates until enough requests are answered.
func Run(s Setup) Result {
	r := &run{Setup: s, costs: rand.New(rand.NewPCG(s.Seed, 1)), speeds: rand.New(rand.NewPCG(s.Seed, 3)), arrivals: rand.New(rand.NewPCG(s.Seed, 2)), cores: processors{Cores: s.Cores}, latencies: make([]time.Duration, 0, s.Requests)}
	cfg := sched.BatcherConfig{
		Policy: s.Policy, Levels: []sched.QueuePolicy{{}},
		Signature: &model.Signature{Name: "simulated", MaxBatch: s.MaxRows},
	}
	r.batcher = sched.NewVirtual(cfg, s.Instances, r.start, nil)
	r.begin()
	for r.answered < s.Warmup+s.Requests {
		r.step()
	}
	return r.summary()
}

// step does what happens next.
func (r *run) step() {
	if next := r.batcher.Next(); !next.IsZero() && !r.before(next.Sub(origin)) {
		r.now = next.Sub(origin)
		r.batcher.Advance(next)
		return
	}
	e := r.next()
	switch {
	case e.batch != nil:
		r.end(e.batch)
	case e.caller == stream:
		r.arrive()
	case e.caller != nobody:
		r.send(e.caller)
	}
}

// before reports whether something happens until then.
func (r *run) before(then time.Duration) bool {
	if len(r.events.list) > 0 && r.events.list[0].at <= then {
		return true
	}
	at, ok := r.cores.next()
	return ok && at <= then
}

// next sets the clock to the next event and returns it.
func (r *run) next() event {
	at, ok := r.cores.next()
	if !ok || len(r.events.list) > 0 && r.events.list[0].at <= at {
		e := r.events.pop()
		r.now = e.at
		return e
	}
	r.now = at
	t := r.cores.step(at)
	switch {
	case t == nil:
		return event{caller: nobody}
	case t.of == &r.cores.client:
		r.cores.do(at, &r.cores.server, t.event, r.Cores.Server)
		return event{caller: nobody}
	}
	return t.event
}

// send has a caller send a request.
func (r *run) send(caller int) {
	var at int
	if n := len(r.unused); n > 0 {
		at, r.unused = r.unused[n-1], r.unused[:n-1]
	} else {
		at = len(r.requests)
		r.requests = append(r.requests, &infer.Request{Rows: 1, Version: int64(at)})
		r.callers, r.numbers = append(r.callers, 0), append(r.numbers, 0)
	}
	r.sent++
	r.callers[at], r.numbers[at] = caller, r.sent
	_ = r.batcher.Submit(r.requests[at], origin.Add(r.now)) // a queue without bounds refuses nothing
}

// start is told of a batch that starts.
func (r *run) start(e *sched.Execution) {
	r.busy++
	took := time.Duration(float64(r.Cost(e.Rows, r.busy)) * r.slowness())
	if r.started++; r.started <= r.Cold {
		took += took / 2
	}
	if r.Spread > 0 {
		took = time.Duration(float64(took) * math.Exp(r.Spread*r.costs.NormFloat64()))
	}
	if r.Cores.Number > 0 {
		r.cores.begin(r.now, &task{event: event{caller: nobody, batch: e}, left: max(took, 1)})
	} else {
		r.events.push(event{at: r.now + max(took, 1), caller: nobody, batch: e})
	}
	r.digest(uint64(r.now))
	for _, q := range e.Requests {
		r.digest(r.numbers[q.Version])
	}
	if r.answered >= r.Warmup {
		r.result.Batches++
		r.rows += e.Rows
	}
}

// slowness returns how many times as long a batch takes that starts now.
func (r *run) slowness() float64 {
	if r.Wander > 0 {
		return r.wander()
	}
	if r.Slow > 0 && r.now/r.Dwell%2 == 1 {
		return r.Slow
	}
	return 1
}

// wanderSteps is how many times the speed changes within Dwell.
const wanderSteps = 16

// wander lets the speed change until now and returns how many times as long a batch takes.
func (r *run) wander() float64 {
	const kept = 1 - 1./wanderSteps
	for ; r.wandered < r.now; r.wandered += r.Dwell / wanderSteps {
		r.speed = kept*r.speed + r.Wander*math.Sqrt(1-kept*kept)*r.speeds.NormFloat64()
	}
	return math.Exp(r.speed)
}

// digest adds a number to what the batches are told apart by.
func (r *run) digest(n uint64) { r.result.Digest = (r.result.Digest ^ n) * 1099511628211 }

// end answers the requests of a batch that has run.
func (r *run) end(e *sched.Execution) {
	r.busy--
	r.between.end(&r.Load, r.now, len(e.Requests))
	if r.Cores.Number > 0 {
		r.cores.do(r.now, &r.cores.server, event{caller: nobody}, r.Cores.Answer)
	}
	for _, q := range e.Requests {
		if r.answered == r.Warmup {
			r.from = r.now
		}
		if r.answered >= r.Warmup && len(r.latencies) < r.Requests {
			r.latencies = append(r.latencies, r.now-q.Queued.Sub(origin))
		}
		r.answered++
		switch caller := r.callers[q.Version]; {
		case caller < 0:
		case r.Cores.Number > 0:
			r.cores.do(r.now, &r.cores.client, event{caller: caller}, r.Load.turnaround(r.arrivals))
		default:
			r.events.push(event{at: r.Load.next(caller, r.now, r.arrivals), caller: caller})
		}
		r.unused = append(r.unused, int(q.Version))
	}
	r.batcher.End(e, origin.Add(r.now))
}

func (r *run) summary() Result {
	res := r.result
	var sum time.Duration
	for _, l := range r.latencies {
		sum += l
	}
	n := len(r.latencies)
	slices.Sort(r.latencies)
	res.Mean, res.P50, res.P99 = sum/time.Duration(n), r.latencies[n/2], r.latencies[n*99/100]
	res.MeanBatch = float64(r.rows) / float64(max(1, res.Batches))
	res.Throughput = float64(r.answered-r.Warmup) / (r.now - r.from).Seconds()
	if r.Load.Pause > 0 {
		res.Throughput = float64(r.between.answered) / r.between.took.Seconds()
	}
	return res
}
