//go:build linux

package python

import (
	"encoding/binary"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"shoal/internal/infer"
)

// lender returns a link to a worker that can map files, and the worker's end.
func lender(t *testing.T) (*link, *net.UnixConn) {
	t.Helper()
	ours, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	conn, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		conn.Close()
	})
	return &link{socket: ours}, conn.(*net.UnixConn)
}

// nextFrame reads a frame about a file, with its descriptors.
func nextFrame(t *testing.T, worker *net.UnixConn) (kind byte, id uint64, fds int) {
	t.Helper()
	b, oob := make([]byte, 13), make([]byte, 64)
	n, oobn, _, _, err := worker.ReadMsgUnix(b, oob)
	if err != nil || n != 13 || binary.LittleEndian.Uint32(b) != 8 {
		t.Fatalf("got % x and %v, want a frame of 8 bytes", b[:n], err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range got {
			fds++
			unix.Close(fd)
		}
	}
	return b[4], binary.LittleEndian.Uint64(b[5:]), fds
}

// anyFile returns the number of an open file.
func anyFile(t *testing.T) int {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

func TestFilesAreLentOnceAndTakenBack(t *testing.T) {
	l, worker := lender(t)
	memory := make([]byte, 4*minLent)
	s := infer.NewShared(anyFile(t), memory)
	row := infer.Data{First: memory[pageSize : pageSize+minLent], Shared: s}
	if !l.lend(row, 0) || !l.lend(row, pageSize) {
		t.Fatal("a row of whole pages was not lent")
	}
	if kind, id, fds := nextFrame(t, worker); kind != frameFile || id != s.ID || fds != 1 {
		t.Errorf("got a frame of kind %d about file %d with %d descriptors, want %d, %d and 1", kind, id, fds, frameFile, s.ID)
	}
	s.End()
	if kind, id, fds := nextFrame(t, worker); kind != frameDrop || id != s.ID || fds != 0 {
		t.Errorf("got a frame of kind %d about file %d with %d descriptors, want %d, %d and none", kind, id, fds, frameDrop, s.ID)
	}
	l.lent.mu.Lock() // until the goroutine that sent the frame has ended
	defer l.lent.mu.Unlock()
	if len(l.lent.files) != 0 {
		t.Error("the link keeps a file that has ended")
	}
}

func TestWhatCannotBeMappedIsNotLent(t *testing.T) {
	l, _ := lender(t)
	memory := make([]byte, 4*minLent)
	s := infer.NewShared(anyFile(t), memory)
	for name, c := range map[string]struct {
		data   infer.Data
		offset int
	}{
		"private memory":     {infer.Data{First: memory[:minLent]}, 0},
		"little":             {infer.Data{First: memory[:minLent-pageSize], Shared: s}, 0},
		"a part of a page":   {infer.Data{First: memory[:minLent+1], Shared: s}, 0},
		"beside a page":      {infer.Data{First: memory[64 : 64+minLent], Shared: s}, 0},
		"to beside a page":   {infer.Data{First: memory[:minLent], Shared: s}, 64},
		"in several pieces":  {infer.Data{First: memory[:minLent], Rest: [][]byte{memory[:1]}, Shared: s}, 0},
		"a client that left": {infer.Data{First: memory[:minLent], Shared: ended(t, memory)}, 0},
	} {
		if l.lend(c.data, c.offset) {
			t.Errorf("%s: lent", name)
		}
	}
}

func ended(t *testing.T, memory []byte) *infer.Shared {
	s := infer.NewShared(anyFile(t), memory)
	s.End()
	return s
}

func TestAWorkerGetsSoManyFilesAndNoneWhenItIsGone(t *testing.T) {
	l, worker := lender(t)
	memory := make([]byte, minLent)
	fd := anyFile(t)
	row := func() infer.Data { return infer.Data{First: memory, Shared: infer.NewShared(fd, memory)} }
	for range maxFiles {
		if !l.lend(row(), 0) {
			t.Fatal("a row was not lent")
		}
		nextFrame(t, worker)
	}
	if l.lend(row(), 0) {
		t.Error("a worker got more files than it may have")
	}
	l.endLent()
	if l.lend(row(), 0) {
		t.Error("a worker that is gone got a file")
	}
}
