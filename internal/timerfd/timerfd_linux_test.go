package timerfd

import (
	"testing"
	"time"
)

func TestTimerGoesOffOncePerSet(t *testing.T) {
	timer, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if timer.Drain() {
		t.Error("got an expiration of a timer that was never set")
	}
	start := time.Now()
	for range 3 {
		timer.Set(time.Hour)
		timer.Set(time.Millisecond) // takes the place of the hour
		if err := timer.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 3*time.Millisecond {
		t.Errorf("three waits of 1ms took %v", took)
	}
	calls := 0
	timer.Poll(func(uintptr) bool {
		if calls++; calls == 1 {
			timer.Set(0)
			return false
		}
		return timer.Drain()
	})
	if calls != 2 {
		t.Errorf("got %d steps, want one to set the timer and one when it went off", calls)
	}
	timer.Set(time.Hour)
	ended := make(chan error)
	go func() { ended <- timer.Wait() }()
	timer.Close()
	if err := <-ended; err == nil {
		t.Error("got no error of a wait for a timer that was closed")
	}
}

func TestInterruptEndsAPoll(t *testing.T) {
	timer, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.Close()
	timer.Interrupt() // before it begins
	if timer.Poll(func(uintptr) bool { return true }) {
		t.Error("interrupted before it began: got a poll that ended by itself")
	}
	timer.Resume()
	polls, ended := make(chan bool, 1), make(chan bool)
	go func() {
		ended <- timer.Poll(func(uintptr) bool {
			polls <- true
			return false
		})
	}()
	<-polls
	timer.Interrupt() // while it waits, or is about to
	if <-ended {
		t.Error("interrupted while it waited: got a poll that ended by itself")
	}
	timer.Resume()
	timer.Set(0)
	if !timer.Poll(func(uintptr) bool { return timer.Drain() }) {
		t.Error("resumed: got an interrupted poll")
	}
}
