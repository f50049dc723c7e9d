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
	in := c.choose(all[2], all, expected, possible).grouping
	for n := range batches {
		rows := c.contenders[in].rows
		took := time.Duration(float64(rows) / rates[in] * float64(time.Millisecond) * (0.8 + 0.4*random.Float64()))
		now = now.Add(took)
		if c.observe(rows, now, took) || n%refresh == 0 {
			in = c.choose(all[2], all, expected, possible).grouping
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

// A duel is a contest between batches of four and of two rows.
type duel struct {
	contest
	now time.Time
}

func newDuel() *duel {
	d := &duel{now: time.Now()}
	d.choose(8)
	d.observe(4, d.now, 10*ms)
	return d
}

// choose finds the rows of the batches of so many callers.
func (d *duel) choose(callers int) int {
	all := []goal{{callers: callers, instances: 2, rows: callers / 2, grouping: 0}, {callers: callers, instances: 2, rows: callers / 4, grouping: 3}}
	return d.contest.choose(all[0], all, []float64{1, 1}, []float64{2, 2}).rows
}

// step ends a batch so long after the one before.
func (d *duel) step(gap time.Duration) {
	d.now = d.now.Add(gap)
	if d.observe(4, d.now, 10*ms) || d.away%refresh == 0 {
		d.choose(8)
	}
}

// turn ends batches until a turn does.
func (d *duel) turn(gap time.Duration) {
	for d.step(gap); d.contest.turn.batches > 0 || d.contest.turn.skipped > 0; {
		d.step(gap)
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
			d := newDuel()
			d.turn(test.before)
			if !d.challenged {
				t.Fatal("the champion's first turn ended without a challenge")
			}
			d.turn(test.during)
			d.turn(test.after)
			if got := d.contenders[3].score.turns; got != test.turns {
				t.Errorf("got %v turns that count, want %v", got, test.turns)
			}
		})
	}
}

// A pause is not time that batches took, and the first of them after it do not count.
func TestAPauseIsNoPartOfATurn(t *testing.T) {
	d := newDuel()
	d.turn(10 * ms)
	for range turnStart*2 + 2 { // two of the challenger count
		d.step(10 * ms)
	}
	seen := d.contest.turn
	d.step(10 * time.Second)
	for range turnStart*2 - 1 {
		d.step(30 * ms)
	}
	if got := d.contest.turn; !d.challenged || got.batches != seen.batches || got.took != seen.took {
		t.Errorf("after a pause: challenged %v, %+v; want the challenger's turn as before, %+v", d.challenged, got, seen)
	}
	d.step(10 * ms)
	if got := d.contest.turn.took; got != seen.took+10*ms {
		t.Errorf("later: got %v in the turn, want %v", got, seen.took+10*ms)
	}
}

// After a pause callers come back one after the other. What was learned of all of them
// is kept, until there are others for long.
func TestScoresAreKeptWhileCallersAreAway(t *testing.T) {
	d := newDuel()
	for range 3 {
		d.turn(10 * ms)
	}
	kept := d.contenders[3].score
	if kept.turns != 1 {
		t.Fatalf("got %v turns after three, want 1", kept.turns)
	}
	few := func(batches int) {
		for range batches {
			d.now = d.now.Add(10 * ms)
			d.observe(2, d.now, 10*ms)
			if rows := d.choose(4); rows != 2 {
				t.Fatalf("got batches of %d rows for four callers, want 2: nothing is known of them", rows)
			}
		}
	}
	few(forgetCallers - 1)
	d.choose(8)
	if got := d.contenders[3].score; got != kept {
		t.Errorf("got %+v when all have returned, want %+v", got, kept)
	}
	few(forgetCallers)
	if d.callers != 4 || d.contenders[3].score.turns != 0 {
		t.Errorf("after many batches of four callers: scores for %d, of %v turns; want new ones", d.callers, d.contenders[3].score.turns)
	}
}

// What is expected of a contender may be wrong by a millisecond of each batch, which
// decides much where batches are short, and little where they are long.
func TestLongBatchesHaveFewerContenders(t *testing.T) {
	for _, test := range []struct {
		took       time.Duration
		challenged bool
	}{{ms, true}, {30 * ms, false}} {
		var c contest
		all := []goal{{callers: 8, instances: 2, rows: 4, grouping: 0}, {callers: 8, instances: 2, rows: 2, grouping: 3}}
		c.choose(all[0], all, []float64{1, 0.7}, []float64{2, 2})
		if got := c.challenge(test.took); got != test.challenged {
			t.Errorf("batches of %v: challenged %v by one that is expected to bring 0.7 as much, want %v", test.took, got, test.challenged)
		}
	}
}
