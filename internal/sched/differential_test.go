package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// A schedule is what happens to a batcher: requests that come and leave again, at
// times that differ.
type schedule struct {
	cfg       BatcherConfig
	instances int
	ahead     int
	takes     time.Duration // for a batch, and a little more for each row
	arrivals  []scheduled
	drains    bool // after the last arrival
}

type scheduled struct {
	at       time.Duration
	rows     int
	shape    int64
	priority uint64
	timeout  time.Duration
	leaves   time.Duration // after so long; 0 for never
}

// randomSchedule returns a schedule of any kind.
func randomSchedule(rng *rand.Rand) schedule {
	most := []int{1, 2, 4, 8, 16}[rng.IntN(5)]
	p := &Triton{MaxRows: most, Preferred: []int{most}}
	if rng.IntN(2) == 0 {
		p.Preferred = nil
		for range 1 + rng.IntN(3) {
			p.Preferred = append(p.Preferred, 1+rng.IntN(most))
		}
		slices.Sort(p.Preferred)
		p.Preferred = slices.Compact(p.Preferred)
	}
	if rng.IntN(2) == 0 {
		p.Delay = time.Duration(1 + rng.IntN(6_000_000))
	}
	s := schedule{cfg: BatcherConfig{Policy: p, Levels: []QueuePolicy{{}}, Signature: fixedSignature(most)}, instances: 1 + rng.IntN(3), ahead: rng.IntN(3), drains: rng.IntN(2) == 0}
	timeout := func() time.Duration { return time.Duration(1 + rng.IntN(9_000_000)) }
	switch rng.IntN(4) {
	case 0:
		s.cfg.Levels = []QueuePolicy{{MaxSize: 3 + rng.IntN(20), Timeout: time.Duration(rng.IntN(2)) * timeout(), Override: rng.IntN(2) == 0, Delay: rng.IntN(2) == 0}}
	case 1:
		s.cfg.Levels = []QueuePolicy{{}, {Timeout: timeout(), Delay: rng.IntN(2) == 0}, {MaxSize: 5}}
		s.cfg.DefaultLevel = rng.IntN(3)
	}
	mixed := rng.IntN(3) == 0
	if mixed {
		s.cfg.Signature = variableSignature(most)
	}
	s.takes = []time.Duration{20_000, 700_000, 3_000_000, 60_000_000}[rng.IntN(4)]
	gap := int64(s.takes) / int64(1+rng.IntN(3*most))
	at := time.Duration(0)
	for range 20 + rng.IntN(150) {
		a := scheduled{rows: 1, shape: 1, priority: uint64(rng.IntN(5))}
		if rng.IntN(5) > 0 {
			at += time.Duration(rng.Int64N(2 * gap))
		}
		if rng.IntN(30) == 0 {
			at += 5 * s.takes
		}
		at++
		a.at = at
		if rng.IntN(3) == 0 {
			a.rows = 1 + rng.IntN(most)
		}
		if mixed && rng.IntN(4) == 0 {
			a.shape = 2
		}
		if rng.IntN(3) == 0 {
			a.timeout = timeout()
		}
		if rng.IntN(8) == 0 {
			a.leaves = time.Duration(1 + rng.Int64N(2*int64(s.takes)))
		}
		s.arrivals = append(s.arrivals, a)
	}
	return s
}

// A drivable is a batcher in virtual time.
type drivable struct {
	submit   func(*infer.Request, time.Time) error
	withdraw func(*infer.Request, time.Time) bool
	drain    func(time.Time)
	next     func() time.Time
	advance  func(time.Time)
}

// A driver plays a schedule to a drivable and notes what happens.
type driver struct {
	schedule
	drivable
	now  time.Time
	now0 time.Time // when it began, where time is not virtual
	ends []ending
	log  []string
}

type ending struct {
	at  time.Time
	end func()
}

// begin notes that a batch starts, which ends after a while that depends on its
// first request, so that no two end at once.
func (d *driver) begin(requests []*infer.Request, rows int, reason infer.Reason, end func(time.Time)) {
	var ids []string
	for _, r := range requests {
		ids = append(ids, r.ID)
	}
	d.log = append(d.log, fmt.Sprintf("%v: %s (%v)", d.now.Sub(epoch), strings.Join(ids, " "), reason))
	first, _ := strconv.Atoi(requests[0].ID)
	at := d.now.Add(d.takes + time.Duration(rows)*d.takes/10 + time.Duration(first))
	d.ends = append(d.ends, ending{at, func() { end(at) }})
}

func (d *driver) rejected(r *infer.Request) {
	d.log = append(d.log, fmt.Sprintf("%v: %s rejected", d.now.Sub(epoch), r.ID))
}

func (d *driver) play() []string {
	requests := make([]*infer.Request, len(d.arrivals))
	type leaving struct {
		at time.Time
		r  *infer.Request
	}
	var leaves []leaving
	arrived := 0
	for {
		// Of what happens at one time batches end first, then requests leave,
		// and new ones come last.
		var act func()
		at := time.Time{}
		sooner := func(t time.Time, f func()) {
			if !t.IsZero() && (at.IsZero() || t.Before(at)) {
				at, act = t, f
			}
		}
		for i, e := range d.ends {
			sooner(e.at, func() {
				d.ends = slices.Delete(d.ends, i, i+1)
				e.end()
			})
		}
		sooner(d.next(), func() { d.advance(d.now) })
		for i, l := range leaves {
			sooner(l.at, func() {
				leaves = slices.Delete(leaves, i, i+1)
				if d.withdraw(l.r, d.now) {
					d.log = append(d.log, fmt.Sprintf("%v: %s left", d.now.Sub(epoch), l.r.ID))
				}
			})
		}
		if arrived < len(d.arrivals) {
			a := d.arrivals[arrived]
			sooner(epoch.Add(a.at), func() {
				r := &infer.Request{ID: fmt.Sprint(arrived), Rows: a.rows, Priority: a.priority, Timeout: a.timeout}
				r.Inputs = append(r.Inputs, infer.Input{Shape: tensor.Shape{int64(a.rows), a.shape}})
				requests[arrived] = r
				arrived++
				if err := d.submit(r, d.now); err != nil {
					d.log = append(d.log, fmt.Sprintf("%v: %s refused", d.now.Sub(epoch), r.ID))
				} else if a.leaves > 0 {
					leaves = append(leaves, leaving{d.now.Add(a.leaves), r})
				}
				if arrived == len(d.arrivals) && d.drains {
					d.drain(d.now)
				}
			})
		}
		if act == nil {
			return d.log
		}
		d.now = at
		act()
	}
}

// playNew plays a schedule to the batcher as it is.
func playNew(s schedule) []string {
	d := &driver{schedule: s}
	var v *Virtual
	v = NewVirtual(s.cfg, s.instances, func(e *Execution) {
		d.begin(e.Requests, e.Rows, e.Reason, func(at time.Time) { v.End(e, at) })
	}, d.rejected)
	if s.instances == 1 {
		v.all[0].most = 1 + s.ahead
	}
	d.drivable = drivable{
		submit: v.Submit,
		withdraw: func(r *infer.Request, now time.Time) bool {
			v.now = now
			n := v.prune(func(e entry) bool { return e.request == r }, now)
			v.settle()
			return n > 0
		},
		drain: func(now time.Time) {
			v.now, v.hurried, v.closing = now, true, true
			v.former.advance(now)
			v.settle()
		},
		next: v.Next, advance: v.Advance,
	}
	return d.play()
}

// playReference plays it to the batcher as it was.
func playReference(s schedule) []string {
	d := &driver{schedule: s}
	var b *refBatcher
	b = startReference(s.cfg, s.instances, s.ahead, func(bt *refBatch) {
		var requests []*infer.Request
		for _, e := range bt.entries {
			requests = append(requests, e.request)
		}
		d.begin(requests, bt.rows, bt.reason, func(at time.Time) { b.end(bt, at) })
	}, d.rejected)
	d.drivable = drivable{submit: b.submit, withdraw: b.withdraw, drain: b.drain, next: b.next, advance: b.timeUp}
	return d.play()
}

// TestDecisionsAreWhatTheyWere plays random schedules to the batcher and to its
// decisions as they were before policies were an interface: the same requests run
// together, at the same times and for the same reasons.
func TestDecisionsAreWhatTheyWere(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	batches := 0
	for n := range 4000 {
		s := randomSchedule(rng)
		got := playNew(s)
		if diff := cmp.Diff(playReference(s), got); diff != "" {
			t.Fatalf("schedule %d, policy %+v, levels %+v, %d instances that take %v, ahead %d (-was +is):\n%s", n, s.cfg.Policy, s.cfg.Levels, s.instances, s.takes, s.ahead, diff)
		}
		batches += len(got)
	}
	if batches < 100_000 {
		t.Errorf("got %d batches and refusals in all, want many more", batches)
	}
}
