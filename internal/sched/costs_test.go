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

func TestSizesOfAPoint(t *testing.T) {
	last := -1
	for _, sizes := range [][]int{{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}, {16, 19}, {20, 23}, {24, 27}, {28, 31}, {32, 39}} {
		last++
		for _, rows := range sizes {
			if got := sizeIndex(rows); got != last {
				t.Errorf("%d rows: got point %d, want %d", rows, got, last)
			}
		}
	}
	for _, rows := range []int{1 << 16, 1 << 20} {
		if got := sizeIndex(rows); got != costSizes-1 {
			t.Errorf("%d rows: got point %d, want the last, %d", rows, got, costSizes-1)
		}
	}
}

// TestOnePointLeansOnThoseBesideIt: a batch that was delayed tells less than many of the
// sizes beside it, and a step that was seen often stays one.
func TestOnePointLeansOnThoseBesideIt(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name       string
		batches    int // of four rows
		took, want time.Duration
	}{
		{"one that was delayed", 1, 40 * ms, 35 * ms},
		{"one far from the line, as at a model's start", 1, 14 * ms, 14 * ms},
		{"many", 127, 40 * ms, 40 * ms},
	} {
		var c costs
		for range 60 {
			c.observe(3, 1, 10*ms)
			c.observe(5, 1, 50*ms)
		}
		c.by[0].points[sizeIndex(4)] = costPoint{rows: 4, nanos: float64(tt.took), weight: float64(tt.batches), seen: c.by[0].seen}
		c.by[0].draw()
		if got := c.of(4, 1); got < tt.want*97/100 || got > tt.want*103/100 {
			t.Errorf("%s: got %v for four rows, want about %v", tt.name, got, tt.want)
		}
	}
}
