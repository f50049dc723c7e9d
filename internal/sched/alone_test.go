package sched

import (
	"math"
	"testing"
	"time"

	"shoal/internal/infer"
)

func TestACallerAloneIsLearnedFromNowAndThen(t *testing.T) {
	a := NewAuto(64)
	batch := &infer.Batch{Requests: []*infer.Request{{}}}
	now := time.Now()
	run := func(n, inFlight int, took time.Duration) (learned int) {
		for range n {
			begin := now.Add(ms / 4)
			now = begin.Add(took)
			batch.Requests[0].Queued = begin
			seen := a.runs
			a.Observe(Run{Rows: 1, Requests: 1, Busy: 1, Since: begin, Start: begin, End: now, InFlight: inFlight, Batch: batch})
			learned += a.runs - seen
		}
		return learned
	}
	if got := run(alonePeriod, 1, ms); got != alonePeriod {
		t.Errorf("the first %d batches: learned from %d, want all", alonePeriod, got)
	}
	if got := run(10*alonePeriod, 1, ms); got != 10*aloneSample {
		t.Errorf("the next %d batches: learned from %d, want %d", 10*alonePeriod, got, 10*aloneSample)
	}
	if !a.learned.loops {
		t.Error("the caller is not known to send again")
	}
	if got, want := a.learned.latest, ms/4; got < want/2 || got > 2*want {
		t.Errorf("the caller takes %v to return, want about %v", got, want)
	}
	if got, want := a.arrived.rate, 1/float64(ms+ms/4); math.Abs(got/want-1) > 0.01 {
		t.Errorf("rate of arrivals: got %v, want %v", got, want)
	}
	run(10*alonePeriod, 1, 3*ms)
	if got := a.costs.of(1, 1); got < 27*ms/10 || got > 33*ms/10 {
		t.Errorf("the model became slower: got %v, want about 3ms", got)
	}
	if got := run(10, 2, ms); got != 10 {
		t.Errorf("another came: learned from %d batches, want 10", got)
	}
	if got := run(10, 1, ms); got != 10 {
		t.Errorf("the other left: learned from %d batches, want 10", got)
	}
}
