package worker

import (
	"os"

	"golang.org/x/sys/unix"
)

// fSetSig is F_SETSIG, which package unix does not name.
const fSetSig = 10

// tie has the kernel kill the whole group of a child when the pipe's write end
// closes. PR_SET_PDEATHSIG reaches the child alone, and what that has started
// would outlive a server that is killed.
//
// The server keeps its read end open for this: the child's may be gone by then,
// with the child. A process that ends gives its files back from the highest
// number down, and a pipe's write end has the higher one, so it hangs up while
// there is still a reader to tell. Should a kernel do otherwise, the child
// itself is killed all the same.
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
