package sched

import (
	"testing"
	"time"
)

// TestSlowFirstBatchesAreTriedAgainSoon: four rows took long among the first batches,
// and only three rows were seen since.
func TestSlowFirstBatchesAreTriedAgainSoon(t *testing.T) {
	const ms = time.Millisecond
	var c costs
	for range 4 {
		c.observe(4, 1, 100*ms)
	}
	for range 2 * firstBatches {
		c.observe(3, 1, 30*ms)
	}
	if got := c.hope(4, 1); got > 40*ms {
		t.Errorf("hope for four rows: got %v, want at most what they cost at the price of three, 40ms", got)
	}
	c.observe(4, 1, 60*ms)
	if got := time.Duration(c.by[0].points[sizeIndex(4)].nanos); got != 60*ms {
		t.Errorf("four rows again: got %v, want 60ms and nothing of the first batches", got)
	}
}

// TestDoubleTheRowsAreTriedAgain: a batch of eight rows was slow, and four rows are the
// cheapest that are known. Eight must promise enough for a trial in the end, even where
// they seem to cost more than twice as much.
func TestDoubleTheRowsAreTriedAgain(t *testing.T) {
	const ms = time.Millisecond
	var c costs
	for range 20 {
		c.observe(4, 1, 5*ms)
	}
	c.observe(8, 1, 14*ms)
	c.observe(8, 1, 14*ms)
	for range 4 * hopeAfter {
		c.observe(4, 1, 5*ms)
	}
	double := 2 * c.of(4, 1)
	if got := c.hope(8, 1); float64(got) > float64(double)/promising {
		t.Errorf("hope for eight rows: got %v, want clearly less than %v, so that they are tried", got, double)
	}
}

// TestBatchesThatTakeNoTime: a clock that does not advance leaves costs that are numbers
// and that follow when it does.
func TestBatchesThatTakeNoTime(t *testing.T) {
	const ms = time.Millisecond
	var c costs
	for _, took := range []time.Duration{0, 10 * ms, 0, 10 * ms} {
		for range 100 {
			c.observe(4, 1, took)
			c.observe(5, 1, took)
		}
	}
	if got := c.of(4, 1); !near(got, 10*ms) {
		t.Errorf("got %v after batches of 0 and of 10ms, want 10ms", got)
	}
}
