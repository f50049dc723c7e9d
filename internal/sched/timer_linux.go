package sched

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A timerFD is a timer of the system that is waited for through the runtime's
// poller: a hundred times less late than a timer of the runtime in an idle
// process, which rounds its sleep up to a millisecond.
type timerFD struct {
	file *os.File
	conn syscall.RawConn
	fd   int
}

func openTimerFD() (*timerFD, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer for the batcher: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	conn, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("make a timer for the batcher: %w", err)
	}
	return &timerFD{file, conn, fd}, nil
}

func (t *timerFD) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		panic("BUG: sched: timerfd_settime: " + err.Error())
	}
}

func (t *timerFD) close() { _ = t.file.Close() } // ends a read; there is nothing to lose

// An fdTimer calls its function when its timerFD goes off.
type fdTimer struct {
	*timerFD
	wg sync.WaitGroup
}

func newTimer(f func()) (timer, error) {
	fd, err := openTimerFD()
	if err != nil {
		return nil, err
	}
	t := &fdTimer{timerFD: fd}
	t.wg.Go(func() {
		var expirations [8]byte
		for {
			if _, err := t.file.Read(expirations[:]); err != nil {
				return // closed
			}
			f()
		}
	})
	return t, nil
}

func (t *fdTimer) close() {
	t.timerFD.close()
	t.wg.Wait()
}
