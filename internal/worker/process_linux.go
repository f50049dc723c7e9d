package worker

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fSetSig is F_SETSIG, which package unix does not name.
const fSetSig = 10

// processAttributes gives the child a group of its own and has the kernel kill
// it when the thread that starts it ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroupOnHangup has the kernel kill the child's whole group when the other
// end of the lifeline closes. PR_SET_PDEATHSIG reaches the child alone, and
// what it started would outlive a server that is killed. The setting belongs to
// the open pipe, which the child shares, and outlives our own descriptor.
// Without it, which no kernel in use is, the child is killed all the same.
func killGroupOnHangup(read *os.File, pid int) {
	conn, err := read.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		if _, err := unix.FcntlInt(fd, unix.F_SETOWN, -pid); err != nil {
			return
		}
		if _, err := unix.FcntlInt(fd, fSetSig, int(unix.SIGKILL)); err != nil {
			return
		}
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil {
			return
		}
		_, _ = unix.FcntlInt(fd, unix.F_SETFL, flags|unix.O_ASYNC)
	})
}

// awaitExit returns when the child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
