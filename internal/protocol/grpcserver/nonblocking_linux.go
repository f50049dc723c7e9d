package grpcserver

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A nonBlocking is a socket that is written to without waiting. It belongs to the
// goroutine that writes.
type nonBlocking struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) bool // s.writeTo, made once
	vector  []unix.Iovec

	// Of one write.
	list net.Buffers
	n    int
	err  error
}

// newNonBlocking returns nil for a connection that is no socket.
func newNonBlocking(nc net.Conn) *nonBlocking {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	s := &nonBlocking{raw: raw}
	s.attempt = s.writeTo
	return s
}

// write writes as much of the list as the socket takes at once and returns how
// much that was.
func (s *nonBlocking) write(list net.Buffers) (int, error) {
	s.list, s.n, s.err = list, 0, nil
	err := s.raw.Write(s.attempt)
	clear(s.vector[:cap(s.vector)])
	s.list = nil
	if err == nil {
		err = s.err
	}
	return s.n, err
}

// maxVector is how many parts the system takes at once.
const maxVector = 1024

// writeTo reports that nothing is to be waited for.
func (s *nonBlocking) writeTo(fd uintptr) bool {
	for len(s.list) > 0 {
		s.vector = s.vector[:0]
		for _, b := range s.list[:min(len(s.list), maxVector)] {
			v := unix.Iovec{Base: unsafe.SliceData(b)}
			v.SetLen(len(b))
			s.vector = append(s.vector, v)
		}
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&s.vector[0])), uintptr(len(s.vector)))
		switch errno {
		case 0:
			s.n += int(n)
			s.skip(int(n))
		case unix.EINTR:
		case unix.EAGAIN:
			return true
		default:
			s.err = errno
			return true
		}
	}
	return true
}

// skip takes n bytes off the list.
func (s *nonBlocking) skip(n int) {
	for len(s.list) > 0 && n >= len(s.list[0]) {
		n -= len(s.list[0])
		s.list = s.list[1:]
	}
	if n > 0 {
		s.list[0] = s.list[0][n:]
	}
}
