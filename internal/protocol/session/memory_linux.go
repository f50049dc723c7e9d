package session

import (
	"fmt"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"shoal/internal/infer"
)

// newRegion makes memory that a client can share by the file descriptor, which
// the caller must close. Nobody can change its size. With readOnly, clients cannot
// write there.
func newRegion(size int, readOnly bool) (b []byte, fd int, err error) {
	if fd, err = unix.MemfdCreate("shoal-session", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return nil, -1, fmt.Errorf("create shared memory: %w", err)
	}
	fail := func(what string, err error) ([]byte, int, error) {
		unmap(b)
		_ = unix.Close(fd)
		return nil, -1, fmt.Errorf("%s %d bytes of shared memory: %w", what, size, err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		return fail("reserve", err)
	}
	if b, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fail("map", err)
	}
	// If the file shrank, the server would crash when it reads it.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if readOnly {
		seals |= unix.F_SEAL_FUTURE_WRITE // our own mapping stays writable
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fail("seal", err)
	}
	return b, fd, nil
}

// minShared is the least memory whose inputs workers may map: small ones are
// copied sooner.
const minShared = 256 << 10

// share returns the file as one that workers can map; nil when it is small, or no
// descriptor is left.
func share(b []byte, fd int) *infer.Shared {
	if len(b) < minShared {
		return nil
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil // its inputs are copied
	}
	return infer.NewShared(own, b)
}

func unmap(b []byte) {
	if b != nil {
		_ = unix.Munmap(b) // it was mapped, so this cannot fail
	}
}

func closeFDs(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written
	}
}

// rights returns the control message that passes file descriptors.
func rights(fds ...int) []byte { return unix.UnixRights(fds...) }

// word returns a number in shared memory, at a multiple of 4.
func word(b []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&b[at])) }

// wake wakes the thread that sleeps on a word.
func wake(w *uint32) {
	const futexWake = 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1, 0, 0, 0)
}

// peer returns the user of the process at the other end, and its number.
func peer(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, 0, err
	}
	if failed != nil {
		return 0, 0, failed
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// send sends a message unless the client has left so many unread that there is no
// room for it.
func send(fd uintptr, b []byte) {
	_ = unix.Send(int(fd), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func load(w *uint32) uint32     { return atomic.LoadUint32(w) }
func store(w *uint32, n uint32) { atomic.StoreUint32(w, n) }
