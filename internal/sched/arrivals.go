package sched

import "time"

// arrivals is how many rows come in a nanosecond: as many as are answered.
type arrivals struct {
	rate  float64
	rows  int // since the time
	since time.Time
}

// arrivalSpan is how many rows are counted before the rate is found anew.
const arrivalSpan = 64

func (a *arrivals) observe(rows int, end time.Time) {
	a.rows += rows
	switch {
	case a.since.IsZero():
		a.rows, a.since = 0, end
	case a.rows >= arrivalSpan:
		rate := float64(a.rows) / max(1, float64(end.Sub(a.since)))
		if a.rate == 0 {
			a.rate = rate
		}
		a.rate += (rate - a.rate) / 2
		a.rows, a.since = 0, end
	}
}
