package sched

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// seenSizes returns costs of 4 and 8 rows that were seen often: 10 and 15 ms.
func seenSizes() *costs {
	const ms = time.Millisecond
	c := new(costs)
	for range 20 {
		c.observe(4, 1, 10*ms)
		c.observe(8, 1, 15*ms)
	}
	return c
}

func near(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) < 0.06*float64(want)
}

// TestASlowerMachineIsSlowerForAllSizes: what was learned of a size that does not run
// while the machine is slower is not taken for cheap.
func TestASlowerMachineIsSlowerForAllSizes(t *testing.T) {
	const ms = time.Millisecond
	c := seenSizes()
	for _, slow := range []float64{1.5, 1, 0.7, 1} {
		for range 20 {
			c.observe(4, 1, time.Duration(slow*10*float64(ms)))
		}
		if got, want := c.of(8, 1), time.Duration(slow*15*float64(ms)); !near(got, want) {
			t.Errorf("batches of 4 rows take %v times as long: got %v for 8 rows, want %v", slow, got, want)
		}
	}
}

func TestADelayedBatchDoesNotChangeThePace(t *testing.T) {
	const ms = time.Millisecond
	c := seenSizes()
	for range 10 {
		c.observe(4, 1, 25*ms)
		for range 3 {
			c.observe(4, 1, 10*ms)
		}
	}
	if got := c.of(8, 1); !near(got, 15*ms) {
		t.Errorf("one batch in four was delayed: got %v for another size, want 15ms as before", got)
	}
}

// TestChanceDoesNotChangeThePace: batches that vary much are no slower machine.
func TestChanceDoesNotChangeThePace(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := seenSizes()
	for range 4000 {
		c.observe(4, 1, time.Duration(1e7*math.Exp(0.3*random.NormFloat64())))
	}
	if got := c.by[0].pace.factor; got < 0.7 || got > 1.4 {
		t.Errorf("the pace is %v, want nearly 1", got)
	}
}

// TestOtherCostsWithMoreBusyInstances: batches that become slower while two run tell
// nothing of those that run alone.
func TestOtherCostsWithMoreBusyInstances(t *testing.T) {
	const ms = time.Millisecond
	c := seenSizes()
	for _, took := range []time.Duration{20 * ms, 40 * ms} {
		for range 30 {
			c.observe(8, 2, took)
		}
	}
	if alone, two := c.of(8, 1), c.of(8, 2); !near(alone, 15*ms) || !near(two, 40*ms) {
		t.Errorf("got %v alone and %v with two, want 15ms and 40ms", alone, two)
	}
}

// Now and then two batches in a row are delayed: the machine is not slower then.
func TestDelaysDoNotMakeSizesThatDoNotRunExpensive(t *testing.T) {
	c := delayed(1000, 500)
	if got := c.of(4, 1); got < 300*us || got > 1600*us { // a part of the delays is not told from a slower machine
		t.Errorf("got %v for four rows, which took 400us when they last ran", got)
	}
	if got := delayed(2000, 20).of(4, 1); got <= 0 {
		t.Errorf("delays all the time: got %v for four rows, want a time", got)
	}
}

// delayed returns costs of four rows, which took 400us when they last ran, and of two.
// So often two batches in a row are delayed, after so many that are not.
func delayed(times, after int) *costs {
	random := rand.New(rand.NewPCG(3, 4))
	c := new(costs)
	see := func(rows int, took float64) {
		c.observe(rows, 1, time.Duration(took*math.Exp(0.2*random.NormFloat64())*float64(us)))
	}
	for range 200 {
		see(4, 400)
		see(2, 250)
	}
	for range times {
		for range after {
			see(2, 250)
		}
		see(2, 900)
		see(2, 900)
	}
	return c
}
