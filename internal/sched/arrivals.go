package sched

import (
	"time"

	"shoal/internal/infer"
)

// arrivals is how requests come.
type arrivals struct {
	rate    float64 // rows in a nanosecond: as many as are answered
	batch   float64 // rows of a batch
	rows    int     // since the time
	batches int     // since the time
	since   time.Time
	gaps    times     // between a request and the next
	newest  time.Time // when the last of them came
}

// arrivalRows and arrivalBatches are how many are counted before the rate is found
// anew.
const (
	arrivalRows    = 64
	arrivalBatches = 8
)

// observe learns from a batch when its requests came, and that its rows are answered.
func (a *arrivals) observe(requests []*infer.Request, rows int, end time.Time) {
	a.gaps.fade()
	for _, q := range requests {
		gap := q.Queued.Sub(a.newest)
		if gap < 0 { // one of an earlier batch came later
			continue
		}
		if !a.newest.IsZero() {
			a.gaps.add(gap)
		}
		a.newest = q.Queued
	}
	a.rows += rows
	a.batches++
	switch {
	case a.since.IsZero():
		a.rows, a.batches, a.since = 0, 0, end
	case a.rows >= arrivalRows && a.batches >= arrivalBatches:
		rate := float64(a.rows) / max(1, float64(end.Sub(a.since)))
		if a.rate == 0 {
			a.rate = rate
		}
		a.rate += (rate - a.rate) / 4
		a.batch = float64(a.rows) / float64(a.batches)
		a.rows, a.batches, a.since = 0, 0, end
	}
}

// skip notes a batch of one request, whose distance from the one before is not learned.
func (a *arrivals) skip(request *infer.Request, rows int) {
	a.newest = request.Queued
	a.rows += rows
	a.batches++
}
