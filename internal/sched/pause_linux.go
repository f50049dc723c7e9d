package sched

import (
	"time"

	"shoal/internal/timerfd"
)

// A pollPauser waits for a timerfd through the Go runtime's poller. Even
// without a time to wait it yields until the runtime has polled the sockets
// once. runtime.Gosched does not: the runtime runs a goroutine that yielded
// before it polls, so requests that have arrived stay unread. A yield costs
// about three microseconds.
type pollPauser struct {
	fd   *timerfd.Timer
	next time.Duration
	step func(fd uintptr) bool // made once, so that a pause allocates nothing
	set  bool
}

func newPauser() (pauser, error) {
	fd, err := openTimer()
	if err != nil {
		return nil, err
	}
	p := &pollPauser{fd: fd}
	p.step = func(uintptr) bool {
		if p.set {
			return p.fd.Drain()
		}
		p.set = true
		p.fd.Set(p.next)
		return false // wait until it goes off
	}
	return p, nil
}

func (p *pollPauser) pause(d time.Duration) {
	p.next, p.set = d, false
	if !p.fd.Poll(p.step) {
		p.fd.Set(time.Hour) // so that it does not go off while nobody waits
		p.fd.Resume()
	}
}

func (p *pollPauser) wake() { p.fd.Interrupt() }

func (p *pollPauser) close() { p.fd.Close() }
