package worker

import (
	"os"

	"golang.org/x/sys/unix"
)

// fSetSig is F_SETSIG, which package unix does not define.
const fSetSig = 10

// tie makes the kernel kill the whole group of a child when the pipe's write
// end closes. PR_SET_PDEATHSIG reaches only the child, and the processes that
// it started would outlive a server that is killed.
//
// The server keeps its read end open for this: the child's may already be
// closed. A process that ends closes its files from the highest number down,
// and a pipe's write end has the higher number, so it closes while there is
// still a reader to signal. Should a kernel do otherwise, the child itself is
// still killed.
func (l lifeline) tie(pid int) {
	set(l.read, unix.F_SETOWN, func(int) int { return -pid })
	set(l.read, fSetSig, func(int) int { return int(unix.SIGKILL) })
	set(l.read, unix.F_SETFL, func(flags int) int { return flags | unix.O_ASYNC })
}

// set changes one property of an open file, given its flags.
func set(f *os.File, property int, value func(flags int) int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err == nil {
			_, _ = unix.FcntlInt(fd, property, value(flags))
		}
	})
}
