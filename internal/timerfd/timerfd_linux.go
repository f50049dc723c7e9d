package timerfd

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Timer goes off once for each Set.
type Timer struct {
	file *os.File
	conn syscall.RawConn
	fd   int
	read [8]byte // of Wait, so that it allocates nothing
}

// Open returns a timer that is not set.
func Open() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	conn, err := file.SyscallConn()
	if err != nil {
		_ = file.Close() // nothing can be lost
		return nil, err
	}
	return &Timer{file: file, conn: conn, fd: fd}, nil
}

// Set makes the timer go off after d, instead of at an earlier setting. It must
// not be called after Close.
func (t *Timer) Set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		panic("BUG: timerfd_settime: " + err.Error())
	}
}

// Wait returns when the timer has gone off, or with an error when it is closed. One
// goroutine waits at a time.
func (t *Timer) Wait() error {
	_, err := t.file.Read(t.read[:])
	return err
}

// Poll calls step, and again whenever the timer goes off, until step returns true,
// Interrupt is called or the timer is closed. It reports whether step returned true.
func (t *Timer) Poll(step func(fd uintptr) bool) bool { return t.conn.Read(step) == nil }

// Interrupt ends a Poll, and those that begin before Resume. It wakes the goroutine
// directly; with Set(0) the poller would first have to see that the timer went off.
func (t *Timer) Interrupt() { _ = t.file.SetReadDeadline(past) } // fails only when closed

// Resume ends the effect of Interrupt.
func (t *Timer) Resume() { _ = t.file.SetReadDeadline(time.Time{}) } // as above

var past = time.Unix(1, 0)

// Drain consumes an expiration of the timer and reports whether there was one.
func (t *Timer) Drain() bool {
	var expirations [8]byte
	_, err := unix.Read(t.fd, expirations[:])
	return err == nil
}

// Close ends a Wait or a Poll.
func (t *Timer) Close() { _ = t.file.Close() } // a timer has nothing to lose
