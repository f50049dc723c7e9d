package sched

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A fdTimer is a timerfd read through the runtime's poller: a hundred times less
// late than a timer of the runtime in an idle process, which rounds its sleep up
// to a millisecond.
type fdTimer struct {
	file *os.File
	fd   int
	wg   sync.WaitGroup
}

func newTimer(f func()) (timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer for queue delays: %w", err)
	}
	t := &fdTimer{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
	t.wg.Go(func() { t.wait(f) })
	return t, nil
}

func (t *fdTimer) wait(f func()) {
	var expirations [8]byte
	for {
		if _, err := t.file.Read(expirations[:]); err != nil {
			return // closed
		}
		f()
	}
}

func (t *fdTimer) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		panic("BUG: sched: timerfd_settime: " + err.Error())
	}
}

func (t *fdTimer) close() {
	_ = t.file.Close() // ends the read; there is nothing to lose
	t.wg.Wait()
}
