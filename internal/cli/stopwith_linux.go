package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// watchProcess returns a function that waits until the process ends and returns
// true, or false when stop was called before that.
func watchProcess(pid int) (wait func() bool, stop func(), err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return func() bool { return true }, func() {}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	ends, other, err := os.Pipe()
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	wait = func() bool {
		defer func() { _ = unix.Close(fd); _ = ends.Close() }()
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(ends.Fd()), Events: unix.POLLIN}}
		for {
			if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
				return fds[0].Revents != 0
			}
		}
	}
	return wait, func() { _ = other.Close() }, nil
}
