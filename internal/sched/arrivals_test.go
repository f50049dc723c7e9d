package sched

import (
	"testing"
	"time"

	"shoal/internal/infer"
)

// TestArrivalsKnowBursts: after a request that comes together with others the next is
// near, and after a pause it is not.
func TestArrivalsKnowBursts(t *testing.T) {
	var a arrivals
	at := time.Unix(0, 0)
	for range 100 {
		var batch []*infer.Request
		for range 8 {
			batch = append(batch, &infer.Request{Queued: at})
			at = at.Add(50 * time.Microsecond)
		}
		at = at.Add(20 * ms)
		a.observe(batch, 8, at)
	}
	for _, tt := range []struct {
		from, to time.Duration
		want     float64
	}{
		{0, 100 * time.Microsecond, 0.875},
		{0, 30 * time.Microsecond, 0},
		{100 * time.Microsecond, 10 * ms, 0},
		{100 * time.Microsecond, 40 * ms, 1},
		{time.Second, 2 * time.Second, 0}, // none was so late
	} {
		if got := a.gaps.chance(tt.from, tt.to); got < tt.want-0.01 || got > tt.want+0.01 {
			t.Errorf("chance of a request from %v to %v after the last: got %.3f, want %.3f", tt.from, tt.to, got, tt.want)
		}
	}
	if rows := a.rate * 20.4 * float64(ms); rows < 7.9 || rows > 8.1 {
		t.Errorf("rate: got %.2f rows in a burst and the pause after it, want 8", rows)
	}
	if a.batch != 8 {
		t.Errorf("rows of a batch: got %.2f, want 8", a.batch)
	}
}
