package sched

import (
	"math"
	"time"
)

// costs is what batches were seen to take, by their rows and by how many batches
// ran. It follows the model when that becomes faster or slower. Between the sizes
// that were seen it interpolates; real costs are not lines.
type costs struct {
	by    []costTable // the first for one that runs alone
	noise float64     // by which part of itself the cost of a batch varies
}

// A costTable has the points of one number of busy instances. A point is the mean
// of what was seen of sizes near each other. The curve is what is made of them.
type costTable struct {
	points [costSizes]costPoint
	curve  []costPoint   // ascending in rows, not descending in time
	seen   int           // batches
	spent  time.Duration // by all of them
	drawn  int           // how many were seen when the curve was made
	pace   pace          // of the machine, which the points and the curve are without
}

type costPoint struct {
	rows, nanos, weight float64
	seen                int           // the last batch of the table that was one of these
	spent               time.Duration // what all batches of the table had taken then
	tries               int           // how often it came again after a long time, and did not stay
	running             int           // how many were seen since it came again
}

// costSizes is how many points a table has: four for each doubling of the rows, up
// to 2^16 of them.
const costSizes = 60

// costMemory is how many batches of a size a point remembers, and costFading what
// is left of that each time the curve is made: what was not seen for long is soon
// replaced.
const (
	costMemory = 32
	costFading = 0.98
)

// sizeIndex returns the point that rows belong to: 1, 2, ... 7, 8-9, 10-11, ... 14-15, 16-19...
func sizeIndex(rows int) int {
	i := 0
	for rows >= 8 {
		rows, i = rows>>1, i+4
	}
	return min(i+rows-1, costSizes-1)
}

// observe learns how long a batch took.
func (c *costs) observe(rows, busy int, took time.Duration) {
	for len(c.by) < busy {
		c.by = append(c.by, costTable{curve: make([]costPoint, 0, costSizes), pace: pace{factor: 1}})
	}
	t := &c.by[busy-1]
	t.seen++
	t.spent += took
	p := &t.points[sizeIndex(rows)]
	if p.weight > 0 && t.seen-p.seen > staleAfter {
		p.weight = min(p.weight, 2) // the last were long ago
		if p.seen <= firstBatches {
			p.weight = 0
		}
		p.tries, p.running = min(p.tries+1, mostTries), 0
	}
	if p.running++; p.running > refresh {
		p.tries = 0
	}
	p.seen, p.spent = t.seen, t.spent
	nanos := float64(max(1, took)) / t.pace.factor                   // a coarse clock may show no time at all, which has no logarithm
	if p.weight == 0 || p.weight < fewBatches && nanos < p.nanos/2 { // the first batches of a model are slow ones
		p.rows, p.nanos, p.weight = float64(rows), nanos, 1
		return
	}
	t.update()
	expected := p.nanos
	if n := float64(rows); n != p.rows {
		expected = max(p.nanos/2, p.nanos+t.along(n)-t.along(p.rows))
	}
	by := math.Log(nanos / expected)
	variance := max(leastVariance, 1.5*c.noise*c.noise) // of a normal distribution with that mean deviation
	c.noise += (min(1, math.Abs(by)) - c.noise) / 64
	left := by // at the new pace
	if p.weight >= fewBatches {
		left = t.pace.observe(by, variance*(1+1/p.weight))
	}
	left = min(max(left, -0.5), 0.5) // a batch during which the machine did something else tells little
	if left != by {
		nanos = expected * math.Exp(left)
	}
	p.weight = min(p.weight+1, costMemory)
	p.rows += (float64(rows) - p.rows) / p.weight
	p.nanos += (nanos - p.nanos) / p.weight
}

// fewBatches is how many batches of a size tell more of it than of the machine's pace.
const fewBatches = 8

// leastVariance is the square of the least part of itself that the cost of a batch is
// taken to vary by.
const leastVariance = 0.02 * 0.02

// hope returns what a batch may take: the least, where its size was not seen for
// long, because what was seen may have been bad luck, or only among the first batches,
// or never. So it is tried again now and then. The longer a batch takes, and the more
// often it was tried in vain, the rarer.
func (c *costs) hope(rows, busy int) time.Duration {
	expected := c.of(rows, busy)
	if busy < 1 || busy > len(c.by) {
		return expected
	}
	t := &c.by[busy-1]
	p := &t.points[sizeIndex(rows)]
	least := t.least(rows, expected)
	if least <= 0 {
		return expected
	}
	age := float64(t.spent-p.spent) / float64(least*hopeAfter*time.Duration(max(1, p.tries)))
	if p.seen <= firstBatches && t.seen > 2*firstBatches {
		age = max(age, 1)
	}
	least -= time.Duration(min(0.1, age/100) * float64(least)) // after very long
	return least + time.Duration(max(0, 1-age)*float64(expected-least))
}

// hopeAfter is how many batches of a size could have run meanwhile when the least is
// hoped for: so many times that as it was tried in vain, up to mostTries.
const (
	hopeAfter = 256
	mostTries = 4
)

// staleAfter is after how many other batches what was seen of a size counts for less,
// and recentBatches after how many only half in the curve.
const (
	staleAfter    = 32
	recentBatches = 64
)

// firstBatches is how many batches of a table count as its first: a model's first
// batches are often slow, whatever their size.
const firstBatches = 16

// least returns what a batch may take at the least: somewhat less than is expected,
// or than two of half its rows, or for each row than any of more than half its rows, or
// its part of a batch of twice its rows.
func (t *costTable) least(rows int, expected time.Duration) time.Duration {
	if len(t.curve) == 0 {
		return expected
	}
	half := time.Duration(t.at(float64((rows + 1) / 2)))
	least := min(expected, 2*half)
	for i := range t.curve {
		if p := &t.curve[i]; p.rows < float64(rows) && 2*p.rows >= float64(rows) {
			least = min(least, time.Duration(t.pace.factor*p.nanos*float64(rows)/p.rows))
		}
	}
	least = least * 3 / 4
	if larger := min(2*rows, int(t.curve[len(t.curve)-1].rows)); larger > rows {
		least = min(least, time.Duration(t.at(float64(larger))*float64(rows)/float64(larger)))
	}
	return least
}

// doubt returns by which part of itself the mean of a size may be wrong, because few
// batches of it were seen.
func (c *costs) doubt(rows, busy int) float64 {
	if busy < 1 || busy > len(c.by) {
		return 0
	}
	return c.noise / math.Sqrt(max(1, c.by[busy-1].points[sizeIndex(rows)].weight))
}

// known reports whether batches of about that size were seen.
func (c *costs) known(rows, busy int) bool {
	return busy >= 1 && busy <= len(c.by) && c.by[busy-1].points[sizeIndex(rows)].weight > 0
}

// of returns how long a batch is expected to take, 0 when nothing is known.
func (c *costs) of(rows, busy int) time.Duration { return c.mean(float64(rows), busy) }

// mean is like of, for a mean of rows, which need not be a whole number.
func (c *costs) mean(rows float64, busy int) time.Duration {
	if len(c.by) == 0 || rows <= 0 {
		return 0
	}
	busy = max(1, min(busy, len(c.by)))
	for d := range len(c.by) { // the nearest number of busy instances that was seen
		for _, b := range [...]int{busy - d, busy + d} {
			if b >= 1 && b <= len(c.by) && c.by[b-1].seen > 0 {
				return time.Duration(c.by[b-1].at(rows))
			}
		}
	}
	return 0
}

// draw makes the curves of all that was seen.
func (c *costs) draw() {
	for i := range c.by {
		if t := &c.by[i]; t.seen > t.drawn {
			t.draw()
		}
	}
}

// draw makes the curve of the points.
func (t *costTable) draw() {
	t.drawn, t.curve = t.seen, t.curve[:0]
	for i := range t.points {
		if p := &t.points[i]; p.weight > 0 {
			p.weight = max(1, p.weight*costFading)
			t.curve = append(t.curve, *p)
		}
	}
	t.lean()
	t.level()
}

// lean draws each point of the curve towards the line between the two beside it, which
// counts as much as one batch: where few were seen, one that was delayed tells less.
func (t *costTable) lean() {
	var before float64 // what the point before took as it was seen
	for i := range t.curve {
		p := &t.curve[i]
		seen := p.nanos
		if i > 0 && i < len(t.curve)-1 {
			low, high := &t.curve[i-1], &t.curve[i+1]
			line := before + (high.nanos-before)*(p.rows-low.rows)/(high.rows-low.rows)
			if seen < 2*line && line < 2*seen { // or some were a model's first batches
				p.nanos = (p.weight*seen + line) / (p.weight + 1)
			}
		}
		before = seen
	}
}

// level takes the mean of points of the curve where more rows seem to take less time.
// What was not seen for long counts little: a slow batch at the start would make its
// neighbours look slow for ever.
func (t *costTable) level() {
	var weights [costSizes]float64 // with those of the points before that are alike
	for n := range t.curve {
		p := &t.curve[n]
		recent := max(1e-6, math.Exp2(-float64(t.seen-p.seen)/recentBatches))
		weights[n] = p.weight * recent
		for first := n; first > 0 && t.curve[first-1].nanos > p.nanos; {
			first--
			mean := p.nanos + (t.curve[first].nanos-p.nanos)*weights[first]/(weights[first]+weights[n])
			weights[n] += weights[first]
			for first > 0 && t.curve[first-1].nanos == t.curve[first].nanos {
				first--
			}
			for k := first; k <= n; k++ {
				t.curve[k].nanos, weights[k] = mean, weights[n]
			}
		}
	}
}

// at interpolates. Outside the sizes that were seen a row costs what it cost
// between the two nearest; where only one size was seen, more rows are taken to
// cost nothing, so that larger batches are tried.
func (t *costTable) at(rows float64) float64 {
	t.update()
	return t.pace.factor * t.along(rows)
}

// update makes the curve if enough was seen since it was made.
func (t *costTable) update() {
	if t.seen-t.drawn >= min(refresh, t.drawn/8+1) {
		t.draw()
	}
}

// along interpolates on the curve.
func (t *costTable) along(rows float64) float64 {
	if len(t.curve) == 1 {
		return t.curve[0].nanos
	}
	i := 1
	for i < len(t.curve)-1 && t.curve[i].rows < rows {
		i++
	}
	low, high := &t.curve[i-1], &t.curve[i]
	slope := max(0, (high.nanos-low.nanos)/(high.rows-low.rows))
	switch { // outside, a row is taken to cost no more than those of the nearest size
	case rows < low.rows:
		return low.nanos - min(slope, low.nanos/low.rows)*(low.rows-rows)
	case rows > high.rows:
		return high.nanos + min(slope, high.nanos/high.rows)*(rows-high.rows)
	}
	return low.nanos + slope*(rows-low.rows)
}
