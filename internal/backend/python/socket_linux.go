package python

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sendFile sends a frame with a file descriptor.
func (l *link) sendFile(payload []byte, file int) error {
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return err
	}
	message, rights := appendFrame(nil, frameFile, payload), unix.UnixRights(file)
	l.sending.Lock()
	defer l.sending.Unlock()
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		_, failed = unix.SendmsgN(int(fd), message, rights, nil, unix.MSG_NOSIGNAL) // so short that it is sent as a whole
		return failed != unix.EAGAIN && failed != unix.EINTR
	})
	return errors.Join(err, failed)
}

// socketpair returns two ends of a connection: ours, which the netpoller watches,
// and the worker's, which blocks.
func socketpair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create the socket to the worker: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("create the socket to the worker: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "server"), nil
}
