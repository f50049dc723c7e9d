package sched

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/infer"
)

// taught returns a policy that has seen callers return after a millisecond, and when
// the last batch ended.
func taught(maxRows int, delay time.Duration) (*Fill, time.Time) {
	f := NewFill(maxRows, delay)
	at := epoch
	for range 32 {
		batch := &infer.Batch{Requests: []*infer.Request{{Queued: at.Add(ms)}}}
		at = at.Add(2 * ms)
		f.Observe(Run{Rows: 1, Requests: 1, Busy: 1, Since: at.Add(-ms), Start: at.Add(-ms), End: at, Batch: batch})
	}
	return f, at
}

func TestFillWaitsForCallersThatAreExpectedBack(t *testing.T) {
	const delay = 3 * ms
	tests := []struct {
		name  string
		held  Held
		peak  int
		now   time.Duration // since the last batch ended
		since time.Duration // that the batch is held
		start bool
		more  int
	}{
		{"a lone caller", Held{Rows: 1, Requests: 1, Open: true}, 1, 0, 0, true, 0},
		{"others are away", Held{Rows: 1, Requests: 1, Open: true}, 8, 0, 0, false, 3},
		{"fewer are away than fit", Held{Rows: 1, Requests: 1, Open: true}, 3, 0, 0, false, 2},
		{"all are there", Held{Rows: 3, Requests: 3, Open: true}, 3, 0, 0, true, 0},
		{"it is full", Held{Rows: 4, Requests: 4, Open: true}, 8, 0, 0, true, 0},
		{"it accepts no more", Held{Rows: 2, Requests: 2}, 8, 0, 0, true, 0},
		{"the delay is over", Held{Rows: 1, Requests: 1, Open: true}, 8, 0, delay, true, 0},
		{"they take longer than usual", Held{Rows: 1, Requests: 1, Open: true}, 8, 2 * ms, ms, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, end := taught(4, delay)
			now := end.Add(tt.now)
			tt.held.Since = now.Add(-tt.since)
			v := &View{Now: now, Held: &tt.held, Instances: 2, InFlight: tt.held.Requests, Peak: tt.peak}
			got := f.Decide(v)
			if got.Start != tt.start || got.More != tt.more || got.Start != (got.Wait == 0) || got.Wait > delay {
				t.Errorf("got start %v after %v or %d more rows, want %v after at most %v or %d", got.Start, got.Wait, got.More, tt.start, delay, tt.more)
			}
		})
	}
}

func TestFillStartsAtOnceWhileNothingIsKnownOrNobodyReturns(t *testing.T) {
	v := &View{Now: epoch, Held: &Held{Rows: 1, Requests: 1, Open: true, Since: epoch}, Instances: 1, InFlight: 1, Peak: 8}
	if got := NewFill(4, 3*ms).Decide(v); !got.Start {
		t.Errorf("nothing is known: got %+v, want a start", got)
	}
	f, end := taught(4, 3*ms)
	v.Now, v.Held.Since = end.Add(time.Second), end.Add(time.Second)
	if got := f.Decide(v); !got.Start {
		t.Errorf("a second after the last answer: got %+v, want a start", got)
	}
}

func TestFillForms(t *testing.T) {
	tests := []struct {
		name string
		view View
		want Decision
	}{
		{"an instance is idle", View{Requests: 2, Rows: 2, Idle: 1, Instances: 2, Peak: 8}, Decision{Fill: 4}},
		{"nobody is missing", View{Requests: 2, Rows: 2, Idle: 1, Instances: 2, Peak: 2}, Decision{Fill: 4, Start: true}},
		{"all are busy", View{Requests: 2, Rows: 2, Instances: 1, Peak: 8}, Decision{More: 2}},
		{"a whole batch waits for the only instance", View{Requests: 5, Rows: 5, Instances: 1, Peak: 8}, Decision{Fill: 4}},
		{"several instances are busy", View{Requests: 5, Rows: 5, Instances: 2, Peak: 8}, Decision{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, NewFill(4, ms).Decide(&tt.view)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
