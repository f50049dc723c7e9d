package sched

import (
	"runtime"
	"time"
)

// A pauser lets a leader step aside, so that goroutines that are about to bring
// requests have their turn.
type pauser interface {
	// pause returns after d, or after one turn of the others when d is zero.
	pause(d time.Duration)
	// wake ends a pause that is under way, or the next one.
	wake()
	close()
}

// A plainPauser steps aside for goroutines that are ready, and no longer.
type plainPauser struct{}

func (plainPauser) pause(time.Duration) { runtime.Gosched() }
func (plainPauser) wake()               {}
func (plainPauser) close()              {}
