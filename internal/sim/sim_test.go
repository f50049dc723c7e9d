package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shoal/internal/race"
	"shoal/internal/sched"
)

const ms = time.Millisecond

// line returns a cost that rises by each row.
func line(fixed, row time.Duration) func(rows, busy int) time.Duration {
	return func(rows, _ int) time.Duration { return fixed + time.Duration(rows)*row }
}

func triton(maxRows int) *sched.Triton {
	return &sched.Triton{MaxRows: maxRows, Preferred: []int{maxRows}}
}

// TestAMillionRequestsInSeconds runs the production policy: 64 callers and others
// that come at random, two instances.
func TestAMillionRequestsInSeconds(t *testing.T) {
	setup := Setup{
		Policy: triton(32), MaxRows: 32, Instances: 2, Cost: line(ms, ms/20), Spread: 0.03,
		Load:     Load{Callers: 64, Turnaround: [2]time.Duration{ms / 10, ms / 3}, Rate: 1000},
		Requests: 1_000_000, Seed: 1,
	}
	if race.Enabled {
		setup.Requests /= 20
	}
	begin := time.Now()
	first := Run(setup)
	took := time.Since(begin)
	t.Logf("%d requests in %v: %+v", setup.Requests, took, first)
	if took > 5*time.Second {
		t.Errorf("got %v for %d requests, want at most 5s", took, setup.Requests)
	}
	setup.Requests /= 10
	setup.Seed = 2
	a, b := Run(setup), Run(setup)
	if a != b {
		t.Errorf("the same seed: got %+v and %+v, want the same", a, b)
	}
	setup.Seed = 3
	if c := Run(setup); c.Digest == a.Digest {
		t.Error("another seed: got the same batches, want others")
	}
}

// TestOneCallerAfterTheOther has figures that can be told beforehand.
func TestOneCallerAfterTheOther(t *testing.T) {
	got := Run(Setup{Policy: triton(8), MaxRows: 8, Instances: 1, Cost: line(2*ms, ms), Load: Load{Callers: 1, Turnaround: [2]time.Duration{ms, ms}}, Requests: 100, Warmup: 10})
	if got.Mean != 3*ms || got.P99 != 3*ms || got.Batches != 100 || got.MeanBatch != 1 {
		t.Errorf("got %+v, want 100 batches of one request that takes 3ms", got)
	}
	if got.Throughput < 250 || got.Throughput > 253 { // 4ms each; the first ends when counting begins
		t.Errorf("got %v requests in a second, want one in 4ms", got.Throughput)
	}
}

func TestRandomArrivalsHaveTheirRate(t *testing.T) {
	for name, load := range map[string]Load{
		"alone":     {Rate: 1000},
		"in bursts": {Rate: 1000, Burst: 8, BurstGap: ms / 20},
		"swinging":  {Rate: 1000, Swing: 0.8, Dwell: 200 * ms},
	} {
		got := Run(Setup{Policy: triton(64), MaxRows: 64, Instances: 4, Cost: line(ms, ms/100), Load: load, Requests: 100_000, Seed: 4})
		if got.Throughput < 930 || got.Throughput > 1070 {
			t.Errorf("%s: got %.0f requests in a second, want 1000", name, got.Throughput)
		}
	}
}

func TestEventsComeInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var h events
	var want []time.Duration
	for range 1000 {
		at := time.Duration(rng.IntN(500))
		h.push(event{at: at})
		want = append(want, at)
	}
	slices.Sort(want)
	last := event{}
	for i, w := range want {
		e := h.pop()
		if e.at != w || e.before(&last) {
			t.Fatalf("event %d: got %+v after %+v, want one at %d", i, e, last, w)
		}
		last = e
	}
}

// TestAPauseDoesNotSpoilBatches: callers that all pause and return one after the other
// are as many as before, so that no instance starts with the first few of them.
func TestAPauseDoesNotSpoilBatches(t *testing.T) {
	for _, instances := range []int{1, 2, 4} {
		setup := Setup{
			Policy: sched.NewAuto(64), MaxRows: 64, Instances: instances, Cost: line(20*ms, ms), Seed: 1, Requests: 6000, Warmup: 6000,
			Load: Load{Callers: 64, Turnaround: [2]time.Duration{ms, 2 * ms}, Busy: 500 * ms, Pause: 500 * ms, PauseGap: ms / 50},
		}
		if got, want := Run(setup).MeanBatch, 64/float64(instances); got < 0.97*want {
			t.Errorf("%d instances: got batches of %.1f rows, want nearly all of %v", instances, got, want)
		}
	}
}
