package sched

import (
	"runtime"
	"time"
)

// A pauser lets a leader yield, so that goroutines that are about to bring
// requests can run.
type pauser interface {
	// pause returns after d, or after yielding once when d is zero.
	pause(d time.Duration)
	// wake ends the current pause, or the next one.
	wake()
	close()
}

// A plainPauser only yields to goroutines that are ready.
type plainPauser struct{}

func (plainPauser) pause(time.Duration) { runtime.Gosched() }
func (plainPauser) wake()               {}
func (plainPauser) close()              {}
