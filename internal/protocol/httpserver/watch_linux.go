package httpserver

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A watcher tells when clients hang up, which a server notices only when it
// next reads. One epoll instance watches all connections for that alone, edge
// by edge: a connection is registered once and costs nothing per request. The
// epoll instance is itself waited for in the runtime's poller, so no thread is
// spent on it.
type watcher struct {
	file *os.File // the epoll instance
	raw  syscall.RawConn
	told func(id uint64, gone bool)
	done chan struct{}
}

// startWatcher returns a watcher that calls told with the number of each
// connection whose client sends no more and, if gone is set, is known to read no
// more either. A number may be reported when its connection is already closed.
func startWatcher(told func(id uint64, gone bool)) (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch connections: epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or os would not poll it
		unix.Close(fd)
		return nil, fmt.Errorf("watch connections: %w", err)
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "epoll"), told: told, done: make(chan struct{})}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
		return nil, fmt.Errorf("watch connections: %w", err)
	}
	go w.run()
	return w, nil
}

// add watches c. Closing c ends that, since the kernel drops closed sockets.
func (w *watcher) add(c *conn) {
	if w == nil {
		return
	}
	sc, ok := c.socket.(syscall.Conn)
	if !ok {
		return // a connection of a test, without a socket
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return // closed already
	}
	ev := unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | edge,
		Fd:     int32(c.id), Pad: int32(c.id >> 32), // 64 bits that the kernel keeps for us
	}
	raw.Control(func(fd uintptr) {
		w.raw.Control(func(ep uintptr) {
			unix.EpollCtl(int(ep), unix.EPOLL_CTL_ADD, int(fd), &ev)
		})
	})
}

// edge is EPOLLET, which package unix has as a negative number.
const edge = 1 << 31

func (w *watcher) run() {
	defer close(w.done)
	var events [64]unix.EpollEvent
	for {
		n := 0
		err := w.raw.Read(func(ep uintptr) bool {
			var err error
			for {
				n, err = unix.EpollWait(int(ep), events[:], 0)
				if !errors.Is(err, unix.EINTR) {
					break
				}
			}
			return n > 0
		})
		if err != nil {
			return // closed
		}
		for i := range events[:n] {
			id := uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32
			w.told(id, events[i].Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0)
		}
	}
}

// Close ends the watch and waits for the last report.
func (w *watcher) Close() {
	if w != nil {
		w.file.Close()
		<-w.done
	}
}
