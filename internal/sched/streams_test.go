package sched

import (
	"testing"
	"time"

	"shoal/internal/infer"
)

// streamed returns a policy that has seen requests in groups of so many, 50us apart, with
// pauses of a second, and what batches of each size take.
func streamed(together int, cost func(rows int) time.Duration) (*Auto, time.Time) {
	a := NewAuto(64)
	at := epoch
	for i := range 400 {
		rows := 1 + i%together
		var all []*infer.Request
		for range rows {
			all = append(all, &infer.Request{Queued: at})
			at = at.Add(50 * us)
		}
		start := at
		at = start.Add(cost(rows))
		a.Observe(Run{Rows: rows, Requests: rows, Busy: 1, Since: start, Start: start, End: at, InFlight: rows, Batch: &infer.Batch{Requests: all}})
		at = at.Add(time.Second)
	}
	return a, at
}

// TestAutoAwaitsTheRestOfABurst: a batch waits for the next request only where that is
// probably near and saves time.
func TestAutoAwaitsTheRestOfABurst(t *testing.T) {
	fixed := func(rows int) time.Duration { return 5*ms + time.Duration(rows)*100*us }
	linear := func(rows int) time.Duration { return time.Duration(rows) * 5 * ms }
	for _, tt := range []struct {
		name     string
		together int
		cost     func(rows int) time.Duration
		rows     int
		age      time.Duration // of the newest
		idle     int
		most     time.Duration // 0 to start at once
	}{
		{"the first of a burst", 8, fixed, 1, 0, 0, 1250 * us},
		{"the fourth", 8, fixed, 4, 0, 0, 313 * us},
		{"with another idle instance", 8, fixed, 1, 0, 1, 625 * us},
		{"with two, of which one takes the next", 8, fixed, 1, 0, 2, 0},
		{"after the wait", 8, fixed, 1, 1300 * us, 0, 0},
		{"a batch that is full", 8, fixed, 64, 0, 0, 0},
		{"rows that save nothing", 8, linear, 1, 0, 0, 0},
		{"requests that come alone", 1, fixed, 1, 0, 0, 0},
	} {
		a, now := streamed(tt.together, tt.cost)
		held := Held{Rows: tt.rows, Requests: tt.rows, Open: true, LastRun: 5 * ms, Since: now.Add(-tt.age), Newest: now.Add(-tt.age)}
		v := View{Now: now, Instances: 1 + tt.idle, Idle: tt.idle, InFlight: tt.rows, Peak: 128, Varies: 1, Held: &held}
		d := a.Decide(&v)
		if tt.most == 0 && !d.Start {
			t.Errorf("%s: got %+v, want to start", tt.name, d)
		}
		if tt.most > 0 && (d.Start || d.More != 1 || d.Wait > tt.most || d.Wait < tt.most*9/10) {
			t.Errorf("%s: got %+v, want to wait for the next, for %v", tt.name, d, tt.most)
		}
	}
}

// TestAutoTakesFewOfManyThatWait where batches cost more than their rows alone, also
// when requests wait for a busy instance.
func TestAutoTakesFewOfManyThatWait(t *testing.T) {
	a, now := streamed(8, func(rows int) time.Duration { return time.Duration(rows*rows) * 10 * ms })
	for _, idle := range []int{0, 1} {
		v := View{Now: now, Instances: 1, Idle: idle, Requests: 100, Rows: 100, InFlight: 100, Peak: 100, Varies: 1}
		if d := a.Decide(&v); d.Fill == 0 || d.Fill > 2 {
			t.Errorf("with %d idle instances: got %+v, want batches of one or two rows", idle, d)
		}
	}
}

// TestShortBatchesAreNotDivided: where rows cost as much in small batches, requests that wait
// are divided among some, but not if all of them are answered in some microseconds.
func TestShortBatchesAreNotDivided(t *testing.T) {
	for _, tt := range []struct {
		row    time.Duration
		divide bool
	}{{2 * us, false}, {200 * us, true}} {
		a, now := streamed(16, func(rows int) time.Duration { return time.Duration(rows) * tt.row })
		d := a.Decide(&View{Now: now, Requests: 16, Rows: 16, Instances: 1, Idle: 1, InFlight: 16, Peak: 128, Varies: 1})
		if divided := d.Fill < 16; divided != tt.divide {
			t.Errorf("rows of %v: got %+v, want to divide: %v", tt.row, d, tt.divide)
		}
	}
}
