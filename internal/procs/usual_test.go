package procs

import (
	"testing"
	"time"
)

func TestUsualIsNotASingleCall(t *testing.T) {
	var u Usual
	u.Observe(5 * time.Millisecond) // the first
	for i := range 1000 {
		took := 10 * time.Microsecond
		if i%20 == 0 {
			took = 8 * time.Millisecond // stopped by the system
		}
		if u.Observe(took); u.Long() {
			t.Fatalf("call %d: calls of 10 us of which a twentieth takes 8 ms are long, want short", i)
		}
	}
}

func TestUsualFollowsTheCalls(t *testing.T) {
	var u Usual
	after := func(took time.Duration, long bool) (calls int) {
		for calls = 0; u.Long() != long && calls < 1000; calls++ {
			u.Observe(took)
		}
		return calls
	}
	if n := after(time.Millisecond, true); n > 100 {
		t.Errorf("calls of 1 ms were long after %d of them, want at most 100", n)
	}
	if n := after(10*time.Microsecond, false); n > 100 {
		t.Errorf("calls of 10 us were short after %d of them, want at most 100", n)
	}
}
