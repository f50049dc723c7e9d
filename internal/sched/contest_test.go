package sched

import (
	"math/rand/v2"
	"testing"
	"time"
)

// contestOf runs a contest between groupings that are expected to bring the same and
// bring those rates, in rows of a millisecond, and returns for which part of the second
// half of the batches each was in use.
func contestOf(rates map[int]float64, batches int) map[int]float64 {
	var c contest
	all := []goal{{callers: 8, instances: 2, rows: 4, grouping: 0}, {callers: 8, instances: 2, rows: 3, grouping: 1}, {callers: 8, instances: 2, rows: 2, grouping: 3}}
	expected, possible := []float64{0.9, 0.95, 1}, []float64{2, 2, 2}
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	used := make(map[int]float64)
	in := c.choose(&all[2], all, expected, possible)
	for n := range batches {
		rows := c.contenders[in].rows
		took := time.Duration(float64(rows) / rates[in] * float64(time.Millisecond) * (0.8 + 0.4*random.Float64()))
		now = now.Add(took)
		if c.observe(rows, now, took) || n%refresh == 0 {
			in = c.choose(&all[2], all, expected, possible)
		}
		if n >= batches/2 {
			used[in] += 2 / float64(batches)
		}
	}
	return used
}

func TestTheGroupsThatBringMostAreInUse(t *testing.T) {
	for name, rates := range map[string]map[int]float64{
		"as expected":            {0: 1, 1: 1.2, 3: 1.5},
		"more than was expected": {0: 1.6, 1: 1.2, 3: 1.5},
		"between":                {0: 1.2, 1: 1.7, 3: 1.5},
		"much less":              {0: 0.5, 1: 0.5, 3: 1.5},
	} {
		t.Run(name, func(t *testing.T) {
			best := 0
			for g, rate := range rates {
				if rate > rates[best] {
					best = g
				}
			}
			if used := contestOf(rates, 20000); used[best] < 0.9 {
				t.Errorf("got %.2f of the batches with the best of %v, want 0.9; all: %.3v", used[best], rates, used)
			}
		})
	}
}

// Fewer rows must be clearly better: with the same rate the larger batches stay.
func TestLargerGroupsWinATie(t *testing.T) {
	if used := contestOf(map[int]float64{0: 1.505, 1: 1, 3: 1.49}, 20000); used[0] < 0.8 {
		t.Errorf("got %.2f of the batches with four rows, want 0.8; all: %.3v", used[0], used)
	}
}

// A challenger is not better because the machine became faster in its turn.
func TestATurnInWhichTheSpeedChangesDoesNotCount(t *testing.T) {
	for _, test := range []struct {
		name                  string
		before, during, after time.Duration // from the end of a batch to that of the next
		turns                 float64
	}{
		{"a better challenger", 16 * ms, 10 * ms, 16 * ms, 1},
		{"a faster machine", 16 * ms, 10 * ms, 10 * ms, 0},
		{"a slower machine", 10 * ms, 16 * ms, 16 * ms, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c contest
			all := []goal{{callers: 8, instances: 2, rows: 4, grouping: 0}, {callers: 8, instances: 2, rows: 2, grouping: 3}}
			c.choose(&all[0], all, []float64{1, 1}, []float64{2, 2})
			now := time.Now()
			c.observe(4, now, 10*ms)
			turn := func(gap time.Duration) {
				for {
					now = now.Add(gap)
					c.observe(4, now, 10*ms)
					if c.turn.batches == 0 {
						return
					}
				}
			}
			turn(test.before)
			if !c.challenged {
				t.Fatal("the champion's first turn ended without a challenge")
			}
			turn(test.during)
			turn(test.after)
			if got := c.contenders[3].score.turns; got != test.turns {
				t.Errorf("got %v turns that count, want %v", got, test.turns)
			}
		})
	}
}

// After a pause a turn begins anew: what was answered before and after it tells nothing.
func TestAPauseEndsATurn(t *testing.T) {
	var c contest
	all := []goal{{callers: 8, instances: 2, rows: 4, grouping: 0}, {callers: 8, instances: 2, rows: 2, grouping: 3}}
	c.choose(&all[0], all, []float64{1, 1}, []float64{2, 2})
	now := time.Now()
	step := func(d time.Duration) bool {
		now = now.Add(d)
		return c.observe(4, now, time.Millisecond)
	}
	step(time.Millisecond)
	for n := 0; !step(time.Millisecond); n++ {
		if n > 1000 {
			t.Fatal("there was no challenge in 1000 batches")
		}
	}
	if !c.challenged {
		t.Fatal("the turn ended without a challenge")
	}
	if !step(time.Second) || c.challenged || c.before != 0 {
		t.Errorf("after a pause: challenged %v, before %v; want a new turn of the champion", c.challenged, c.before)
	}
}
