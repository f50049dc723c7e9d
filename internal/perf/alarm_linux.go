package perf

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A timerAlarm is a timer of the system that is waited for through the runtime's
// poller: the runtime's own rounds a short sleep of an idle process up to a
// millisecond, which would make every request of a fast schedule late.
type timerAlarm struct {
	file *os.File

	mu     sync.Mutex // protects the fields below
	fd     int        // -1 after close
	awaken bool
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer for the schedule: %w", err)
	}
	return &timerAlarm{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

func (a *timerAlarm) sleep(d time.Duration) {
	if !a.set(d) {
		return
	}
	var expirations [8]byte
	_, _ = a.file.Read(expirations[:]) // fails only when closed, which ends the sleep as well
}

// set arms the timer, and returns false when there is no sleep any more.
func (a *timerAlarm) set(d time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.awaken || a.fd < 0 {
		return false
	}
	a.armLocked(d)
	return true
}

func (a *timerAlarm) armLocked(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	if err := unix.TimerfdSettime(a.fd, 0, &spec, nil); err != nil {
		panic("BUG: perf: timerfd_settime: " + err.Error())
	}
}

func (a *timerAlarm) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.awaken = true
	if a.fd >= 0 {
		a.armLocked(1)
	}
}

func (a *timerAlarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fd = -1
	_ = a.file.Close() // a timer has nothing to lose
}
