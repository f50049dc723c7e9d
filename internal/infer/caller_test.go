package infer

import (
	"context"
	"testing"
)

func TestCallerWithdrawsWhatItWatches(t *testing.T) {
	c := NewCaller(context.Background())
	n := 0
	w := &Waiting{Withdraw: func() { n++ }}
	if !c.Watch(w) {
		t.Fatal("got false from Watch, want true")
	}
	if c.Watch(new(Waiting)) {
		t.Error("got true from Watch with another waiting, want false")
	}
	c.Leave()
	c.Leave()
	c.Unwatch(w)
	if n != 1 || c.Err() == nil {
		t.Errorf("got %d withdrawals and error %v, want 1 and an ended context", n, c.Err())
	}
	if c.Watch(w) {
		t.Error("got true from Watch of a caller that has left, want false")
	}
}

func TestCallerForgetsWhatItNoLongerWatches(t *testing.T) {
	c := NewCaller(context.Background())
	w := &Waiting{Withdraw: func() { t.Error("withdrawn after Unwatch") }}
	c.Watch(w)
	c.Unwatch(w)
	if !c.Watch(w) {
		t.Error("got false from a second Watch, want true")
	}
	c.Unwatch(w)
	c.Leave()
}

// TestCallerUnwatchWaitsForTheWithdrawal would be caught by the race detector:
// whoever has unwatched may use what Withdraw touches.
func TestCallerUnwatchWaitsForTheWithdrawal(t *testing.T) {
	for range 1000 {
		c := NewCaller(context.Background())
		n := 0
		w := &Waiting{Withdraw: func() { n++ }}
		c.Watch(w)
		done := make(chan struct{})
		go func() { defer close(done); c.Leave() }()
		c.Unwatch(w)
		n++
		<-done
		if n != 1 && n != 2 {
			t.Fatalf("got %d, want 1 or 2", n)
		}
	}
}
