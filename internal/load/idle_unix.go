//go:build unix

package load

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// takeNow reads what has arrived.
func takeNow(conn net.Conn, b []byte) (n int, over bool) { return receiveNow(conn, b, 0) }

// peekNow returns how much has arrived, one byte at most, and leaves it.
func peekNow(conn net.Conn) (n int, over bool) {
	var one [1]byte
	return receiveNow(conn, one[:], unix.MSG_PEEK)
}

func receiveNow(conn net.Conn, b []byte, flags int) (n int, over bool) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, true
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _, failed = unix.Recvfrom(int(fd), b, flags|unix.MSG_DONTWAIT)
		return true
	})
	switch {
	case err != nil:
		return 0, true
	case errors.Is(failed, unix.EAGAIN), errors.Is(failed, unix.EINTR):
		return 0, false
	case failed != nil:
		return 0, true
	}
	return n, n == 0
}
