package drive

import (
	"sync"
	"time"
)

// An Alarm lets the pacer of an open loop sleep.
type Alarm interface {
	// sleep returns after d, or after wake.
	sleep(d time.Duration)
	// wake ends a sleep and every later one.
	wake()
	close()
}

// A runtimeAlarm uses the Go runtime's timer, which may be a millisecond late.
type runtimeAlarm struct {
	woken chan struct{}
	once  sync.Once
}

// NewRuntimeAlarm returns an alarm that uses the Go runtime's timer.
func NewRuntimeAlarm() (Alarm, error) { return &runtimeAlarm{woken: make(chan struct{})}, nil }

func (a *runtimeAlarm) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.woken:
	}
}

func (a *runtimeAlarm) wake()  { a.once.Do(func() { close(a.woken) }) }
func (a *runtimeAlarm) close() {}
