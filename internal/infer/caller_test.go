package infer

import (
	"context"
	"sync/atomic"
	"testing"
)

func TestCallerWithdrawsFromEveryPlaceWhenItLeaves(t *testing.T) {
	c := NewCaller(context.Background())
	var places [maxPlaces]Place
	var left [maxPlaces]int
	for i := range places {
		places[i].Withdraw = func(who *Caller) {
			if who != c {
				t.Errorf("got caller %p, want %p", who, c)
			}
			left[i]++
		}
	}
	for range 2 {
		for i := range places {
			if !c.WaitsAt(&places[i]) {
				t.Fatalf("got false at place %d, want true", i)
			}
		}
	}
	if c.WaitsAt(new(Place)) {
		t.Errorf("got true at place %d, want false: it knows no more than %d", maxPlaces, maxPlaces)
	}
	c.Leave()
	c.Leave()
	for i, n := range left {
		if n != 1 {
			t.Errorf("got %d withdrawals from place %d, want 1", n, i)
		}
	}
	if c.Err() == nil {
		t.Error("got a context that goes on, want it ended")
	}
	if c.WaitsAt(&places[0]) {
		t.Error("got true from a caller that has left, want false")
	}
}

// TestCallerLeavesNoRequestBehind has a caller leave while it comes to a place:
// either it learns that it has left, or the place does.
func TestCallerLeavesNoRequestBehind(t *testing.T) {
	for range 1000 {
		c := NewCaller(context.Background())
		var withdrawn atomic.Bool
		p := &Place{Withdraw: func(*Caller) { withdrawn.Store(true) }}
		done := make(chan struct{})
		go func() { defer close(done); c.Leave() }()
		waits := c.WaitsAt(p)
		<-done
		if waits && !withdrawn.Load() {
			t.Fatal("got a wait that nobody ends, want it withdrawn or refused")
		}
	}
}
