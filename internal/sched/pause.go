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

// A yielder lets other threads run between the runs of a thread that computes, where
// there is one core. Without that the system keeps the thread running for
// milliseconds: meanwhile nobody reads requests or writes answers.
type yielder struct {
	pauser pauser
	last   time.Time
}

// yieldAfter is how long runs go on before others run. A yield costs some microseconds.
const yieldAfter = 300 * time.Microsecond

// yield is called after each run.
func (y *yielder) yield() {
	now := time.Now()
	if now.Sub(y.last) < yieldAfter {
		return
	}
	if y.pauser == nil {
		p, err := newPauser()
		if err != nil {
			return // without it answers come, only later
		}
		y.pauser = p
	}
	y.pauser.pause(0)
	y.last = time.Now()
}

func (y *yielder) close() {
	if y.pauser != nil {
		y.pauser.close()
	}
}
