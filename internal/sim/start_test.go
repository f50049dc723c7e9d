package sim

import (
	"testing"
	"time"

	"shoal/internal/race"
	"shoal/internal/sched"
)

// TestAutoForgetsABadStart: whatever the first batches took, because the machine did
// other things, the policy comes to where it comes without that.
func TestAutoForgetsABadStart(t *testing.T) {
	if race.Enabled {
		t.Skip("the same without the race detector: nothing here runs side by side")
	}
	forgetsABadStart(t, smooth, 1.1)
	forgetsABadStart(t, stepped, 1.12)
}

// forgetsABadStart checks that the mean latency is at most so many times what it is without
// a bad start.
func forgetsABadStart(t *testing.T, shapes []shape, most float64) {
	t.Helper()
	for _, s := range shapes {
		for _, instances := range []int{1, 2} {
			for _, sc := range []scene{callers(64, ms, 2*ms), random(0.5)} {
				setup := Setup{
					MaxRows: s.maxRows, Instances: instances, Cost: s.cost, Spread: 0.03, Load: sc.load(s, instances),
					Requests: 3000, Warmup: 40_000, Seed: 1, Policy: sched.NewAuto(s.maxRows),
				}
				want := Run(setup)
				for _, slow := range []struct{ batches, times int }{{4, 30}, {64, 3}} {
					for _, least := range []int{1, 16} {
						n := 0
						setup.Policy = sched.NewAuto(s.maxRows)
						setup.Cost = func(rows, busy int) time.Duration {
							if n++; n <= slow.batches && rows >= least {
								return time.Duration(slow.times) * s.cost(rows, busy)
							}
							return s.cost(rows, busy)
						}
						if got := Run(setup); float64(got.Mean) > most*float64(want.Mean) {
							t.Errorf("%s, %d instances, %s, the first %d batches, if of %d rows or more, took %d times as long: got a mean of %v in batches of %.1f, want %v in %.1f",
								s.name, instances, sc.name, slow.batches, least, slow.times, got.Mean, got.MeanBatch, want.Mean, want.MeanBatch)
						}
					}
				}
			}
		}
	}
}
