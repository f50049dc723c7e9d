package sched

import "time"

// costs is the measured run times of batches, by their rows and by how many
// batches ran. It follows the model when it becomes faster or slower. It
// interpolates between measured sizes; real costs are not linear.
type costs struct {
	by []costTable // the first for a batch that runs alone
}

// A costTable has the points for one number of busy instances. A point is the
// mean over similar sizes.
type costTable struct{ points [costSizes]costPoint }

type costPoint struct{ rows, nanos, weight float64 }

// costSizes is how many points a table has: two for each doubling of the rows,
// up to 2^16 rows.
const costSizes = 33

// costMemory is how many batches of a size a point averages over.
const costMemory = 16

// sizeIndex returns the point that rows belong to: 1, 2, 3, 4-5, 6-7, 8-11, 12-15...
func sizeIndex(rows int) int {
	i := 0
	for rows >= 4 {
		rows, i = rows>>1, i+2
	}
	return min(i+rows-1, costSizes-1)
}

// observe learns how long a batch took.
func (c *costs) observe(rows, busy int, took time.Duration) {
	for len(c.by) < busy {
		c.by = append(c.by, costTable{})
	}
	p := &c.by[busy-1].points[sizeIndex(rows)]
	p.weight = min(p.weight+1, costMemory)
	p.rows += (float64(rows) - p.rows) / p.weight
	p.nanos += (float64(took) - p.nanos) / p.weight
}

// of returns how long a batch is expected to take, 0 when nothing is known.
func (c *costs) of(rows, busy int) time.Duration {
	if len(c.by) == 0 || rows <= 0 {
		return 0
	}
	busy = max(1, min(busy, len(c.by)))
	for d := range len(c.by) { // the nearest number of busy instances with measurements
		for _, b := range [...]int{busy - d, busy + d} {
			if b >= 1 && b <= len(c.by) {
				if t := c.by[b-1].at(float64(rows)); t > 0 {
					return time.Duration(t)
				}
			}
		}
	}
	return 0
}

// at interpolates. Outside the measured sizes a row costs what it cost between
// the two nearest sizes. If only one size was measured, more rows are assumed
// to cost nothing, so that larger batches are tried.
func (t *costTable) at(rows float64) float64 {
	var low, high *costPoint
	for i := range t.points {
		p := &t.points[i]
		if p.weight == 0 {
			continue
		}
		low, high = high, p
		if low != nil && high.rows >= rows {
			break
		}
	}
	switch {
	case high == nil:
		return 0
	case low == nil:
		return high.nanos
	}
	slope := max(0, (high.nanos-low.nanos)/(high.rows-low.rows))
	switch { // outside, a row is assumed to cost no more than at the nearest size
	case rows < low.rows:
		return low.nanos - min(slope, low.nanos/low.rows)*(low.rows-rows)
	case rows > high.rows:
		return high.nanos + min(slope, high.nanos/high.rows)*(rows-high.rows)
	}
	return low.nanos + slope*(rows-low.rows)
}
