package python

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newMemory makes the file and the eventfds.
func newMemory(name string) (_ *memory, err error) {
	m := &memory{}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.fd, err = unix.MemfdCreate("shoal "+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return nil, fmt.Errorf("create the memory that is shared with the worker: %w", err)
	}
	m.file = os.NewFile(uintptr(m.fd), "memory")
	if err = m.extend(1); err != nil {
		return nil, err
	}
	// If the file shrank, the server would crash when it reads it.
	if _, err = unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, fmt.Errorf("seal the memory that is shared with the worker: %w", err)
	}
	if m.page, err = m.mapAt(0, pageSize); err != nil {
		return nil, err
	}
	if m.ring, m.ringFD, err = eventfd("ring"); err != nil {
		return nil, err
	}
	if m.back, m.backFD, err = eventfd("back"); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint64(m.one[:], 1)
	return m, nil
}

func eventfd(name string) (*os.File, int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE)
	if err != nil {
		return nil, 0, fmt.Errorf("create an eventfd: %w", err)
	}
	return os.NewFile(uintptr(fd), name), fd, nil
}

// extend makes the file long enough for that many slots. It uses no memory yet.
func (m *memory) extend(slots int) error {
	if err := unix.Ftruncate(m.fd, int64(slots+1)*span); err != nil {
		return fmt.Errorf("extend the memory that is shared with the worker to %d GiB of holes (see ulimit -f): %w", int64(slots+1)*span>>30, err)
	}
	return nil
}

func (m *memory) mapAt(offset int64, size int) ([]byte, error) {
	b, err := unix.Mmap(m.fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the memory that is shared with the worker: %w", size, err)
	}
	_ = unix.Madvise(b, unix.MADV_DONTDUMP) // a core dump would include all its holes
	return b, nil
}

func unmap(b []byte) {
	if b != nil {
		_ = unix.Munmap(b) // it was mapped, so this cannot fail
	}
}

// punch frees the pages of a part of the file.
func (m *memory) punch(offset, size int64) {
	if m.pinned {
		return
	}
	_ = unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, size) // memory that stays is no error
}

// send announces a batch of size bytes in a slot to the worker, and returns how
// many it has been sent with this one.
func (m *memory) send(s *slot, size int) (uint64, error) {
	entry := m.page[int(m.sent%ringEntries)*ringEntry:]
	binary.LittleEndian.PutUint32(entry, uint32(s.number))
	binary.LittleEndian.PutUint64(entry[8:], uint64(size))
	m.sent++
	binary.LittleEndian.PutUint64(m.page[sentAt:], m.sent)
	_, err := unix.Write(m.ringFD, m.one[:])
	return m.sent, err
}

// answered tells the thread that runs the batch that its call is answered.
func (m *memory) answered() error {
	binary.LittleEndian.PutUint64(m.page[callSlotAt:], 0)
	_, err := unix.Write(m.ringFD, m.one[:])
	return err
}

// wait returns when the worker has answered, or wake was called. It blocks its
// thread: waiting through the netpoller takes twice as long.
func (m *memory) wait() error {
	for {
		_, err := unix.Read(m.backFD, m.token[:])
		if err != unix.EINTR {
			return err
		}
	}
}

// wake ends this and every later wait.
func (m *memory) wake() {
	var many [8]byte
	binary.LittleEndian.PutUint64(many[:], 1<<32)
	_, _ = unix.Write(m.backFD, many[:]) // the counter has room for far more
}

// close frees everything. No slot may be in use.
func (m *memory) close() {
	for _, s := range m.idle {
		s.unmap()
	}
	m.idle = nil
	unmap(m.page)
	for _, f := range []*os.File{m.file, m.ring, m.back} {
		if f != nil {
			f.Close()
		}
	}
}

// wakeWord sets the first word of shared memory and wakes the thread that waits
// for it to change (a futex).
func wakeWord(b []byte, value uint32) {
	word := (*uint32)(unsafe.Pointer(&b[0])) // mapped, so aligned
	atomic.StoreUint32(word, value)
	const wake = 1 // FUTEX_WAKE
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wake, 1, 0, 0, 0)
}
