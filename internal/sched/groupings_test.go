package sched

import (
	"testing"
	"time"

	"shoal/internal/infer"
)

func TestGroupingsReplaceWhatIsExpected(t *testing.T) {
	var g groupings
	g.begin(16, 2)
	goal := &goal{callers: 16, instances: 2, rows: 8, grouping: 0}
	settling := 4*goal.instances + 2
	for range settling {
		g.observe(goal, 2, time.Second)
	}
	if idle, filled := g.expect(0, time.Millisecond); idle != time.Millisecond || filled != 1 {
		t.Errorf("batches formed for another goal: got %v idle and %v filled, want what was expected, 1ms and 1", idle, filled)
	}
	for range 2 * groupMemory {
		g.observe(goal, 6, 3*time.Millisecond)
	}
	idle, filled := g.expect(0, time.Millisecond)
	if idle < 2700*time.Microsecond || idle > 3*time.Millisecond || filled < 0.75 || filled > 0.79 {
		t.Errorf("many batches: got %v idle and %v filled, want nearly 3ms and 0.75", idle, filled)
	}
	if idle, filled := g.expect(1, 0); idle != 0 || filled != 1 {
		t.Errorf("another grouping: got %v idle and %v filled, want what was expected, 0 and 1", idle, filled)
	}
	for range 500 {
		g.fade()
	}
	if idle, _ := g.expect(0, time.Millisecond); idle > 1100*time.Microsecond {
		t.Errorf("long ago: got %v idle, want nearly what was expected, 1ms", idle)
	}
}

func TestGroupingsForgetOtherCallers(t *testing.T) {
	for _, c := range []struct {
		callers, instances int
		forgets            bool
	}{{18, 2, false}, {24, 2, true}, {8, 2, true}, {16, 1, true}} {
		var g groupings
		g.begin(16, 2)
		for range groupMemory {
			g.observe(&goal{callers: 16, instances: 2, rows: 8}, 8, time.Millisecond)
		}
		g.begin(c.callers, c.instances)
		if idle, _ := g.expect(0, 0); (idle == 0) != c.forgets {
			t.Errorf("%d callers of %d instances after 16 of 2: got %v idle, want 0: %v", c.callers, c.instances, idle, c.forgets)
		}
	}
}

// TestIdleTimeIsThatOfTheLastCaller: an instance that waits for all callers is idle until the
// last has come. While the callers pause, it is not idle because of them.
func TestIdleTimeIsThatOfTheLastCaller(t *testing.T) {
	a := NewAuto(16)
	batch := &infer.Batch{}
	for range 16 {
		batch.Requests = append(batch.Requests, &infer.Request{})
	}
	end := epoch
	for i := range 400 {
		last := end
		if i%50 == 49 {
			last = last.Add(time.Second)
		}
		for _, r := range batch.Requests {
			r.Queued = last.Add(ms / 4)
		}
		start := last.Add(3 * ms)
		batch.Requests[15].Queued = start
		a.goal(&View{Instances: 1, InFlight: 16, Peak: 16})
		run := Run{Rows: 16, Requests: 16, Busy: 1, Since: last.Add(ms / 4), LastEnd: end, Start: start, End: start.Add(10 * ms), InFlight: 16, Batch: batch}
		a.Observe(run)
		end = run.End
	}
	if got := time.Duration(a.groups.seen[a.learned.goal.grouping].idle); got != 3*ms {
		t.Errorf("the instance is taken to be idle for %v, want 3ms", got)
	}
}
