package sched

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A pollPauser waits for a timerfd through the runtime's poller. Even without a
// time to wait it steps aside until the runtime has looked at the sockets once.
// runtime.Gosched does not: the runtime takes a goroutine that yielded before it
// polls, so requests that have arrived stay unread. A turn costs about three
// microseconds.
type pollPauser struct {
	fd   *timerFD
	next time.Duration
	step func(fd uintptr) bool // made once, so that a pause allocates nothing
	set  bool

	woken atomic.Bool
}

func newPauser() (pauser, error) {
	fd, err := openTimerFD()
	if err != nil {
		return nil, err
	}
	p := &pollPauser{fd: fd}
	p.step = func(uintptr) bool {
		if p.set {
			return p.fd.drain()
		}
		p.set = true
		p.fd.set(max(p.next, 1))
		if p.woken.Load() {
			p.fd.set(1)
		}
		return false // wait until it goes off
	}
	return p, nil
}

func (p *pollPauser) pause(d time.Duration) {
	p.next, p.set = d, false
	_ = p.fd.conn.Read(p.step) // fails only when closed
	p.woken.Store(false)
}

func (p *pollPauser) wake() {
	p.woken.Store(true)
	p.fd.set(1)
}

func (p *pollPauser) close() { p.fd.close() }

// drain takes the expiration off the timer and reports whether there was one.
func (t *timerFD) drain() bool {
	var count [8]byte
	_, err := unix.Read(t.fd, count[:])
	return err == nil
}
