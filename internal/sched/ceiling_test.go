package sched

import (
	"math/rand/v2"
	"testing"
)

func TestCeilingTellsCallersFromAStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	poisson := func(mean float64) (n int) {
		for sum := rng.ExpFloat64(); sum < mean; sum += rng.ExpFloat64() {
			n++
		}
		return n
	}
	for _, test := range []struct {
		name string
		next func(before int) int
		want bool
	}{
		{"callers that all have a request in flight", func(int) int { return 64 }, true},
		{"callers of whom some are slow now and then", func(int) int { return 64 - max(0, poisson(8)-6) }, true},
		{"callers that all have a request in flight once in four batches", func(int) int { return 64 - rng.IntN(4)*rng.IntN(16) }, true},
		{"few requests of a stream", func(int) int { return poisson(2) }, false},
		{"many requests of a stream", func(int) int { return poisson(40) }, false},
		{"a queue that becomes longer and shorter by chance", func(before int) int { return max(0, before+poisson(20)-min(before, 21)) }, false},
	} {
		var c ceiling
		n, reached, from := 0, 0, 8*ceilingBatches
		for i := range 64 * ceilingBatches {
			n = test.next(n)
			if c.see(n); i >= from && c.reached() {
				reached++
			}
		}
		if share := float64(reached) / float64(64*ceilingBatches-from); test.want && share < 0.95 || !test.want && share > 0.05 {
			t.Errorf("%s: the most is reached again and again in %.2f of the time, want %v", test.name, share, test.want)
		}
	}
}

func TestCeilingForgetsCallersThatLeave(t *testing.T) {
	var c ceiling
	for range 8 * ceilingBatches {
		c.see(64)
	}
	for range 2 * ceilingBatches {
		c.see(8)
	}
	if got := c.highest(); got != 8 {
		t.Errorf("after %d batches of 8 callers there are %d, want 8", 2*ceilingBatches, got)
	}
	if !c.reached() {
		t.Error("8 callers are not told from a stream")
	}
}
