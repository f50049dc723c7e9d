//go:build !linux

package worker

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes gives the child its own process group. Only Linux can tie
// it to the parent's life; elsewhere the child must watch its lifeline.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// tie does nothing here: the child reads the end-of-file and must act on it.
func (l lifeline) tie(int) {}

// awaitExit returns when the child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(queue)
	change := make([]unix.Kevent_t, 1)
	unix.SetKevent(&change[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change[0].Fflags = unix.NOTE_EXIT
	events := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(queue, change, events, nil)
		if n > 0 || !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
