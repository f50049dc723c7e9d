package drive

import (
	"fmt"
	"sync"
	"time"

	"shoal/internal/timerfd"
)

// A timerAlarm uses a timer of the system: with the Go runtime's every request
// of a fast schedule would be late.
type timerAlarm struct {
	timer *timerfd.Timer

	mu     sync.Mutex // protects the fields below
	closed bool
	woken  bool
}

// NewAlarm returns an alarm that is on time.
func NewAlarm() (Alarm, error) {
	t, err := timerfd.Open()
	if err != nil {
		return nil, fmt.Errorf("make a timer for the schedule: %w", err)
	}
	return &timerAlarm{timer: t}, nil
}

func (a *timerAlarm) sleep(d time.Duration) {
	a.mu.Lock()
	over := a.woken || a.closed
	if !over {
		a.timer.Set(d)
	}
	a.mu.Unlock()
	if !over {
		_ = a.timer.Wait() // fails only when closed, which ends the sleep as well
	}
}

func (a *timerAlarm) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.woken = true
	if !a.closed {
		a.timer.Set(0)
	}
}

func (a *timerAlarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.timer.Close()
}
