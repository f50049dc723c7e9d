package infer

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Shared is a file in memory that a client has written tensors to and can still
// change. A worker process can map it instead of getting a copy. All methods may
// be called from any goroutine.
type Shared struct {
	ID     uint64 // no other one has had it
	FD     int
	Memory []byte // the whole file

	mu    sync.Mutex // protects the fields below
	ended bool
	users map[any]func()
}

var lastShared atomic.Uint64

// NewShared returns the file with that descriptor, mapped at memory. The caller
// closes both after End.
func NewShared(fd int, memory []byte) *Shared {
	return &Shared{ID: lastShared.Add(1), FD: fd, Memory: memory, users: make(map[any]func())}
}

// Offset returns where in the file data is, which must be a part of Memory.
func (s *Shared) Offset(data []byte) int64 {
	return int64(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.Memory))))
}

// Use has end called when the file ends, unless Leave is called with the same key
// before. It returns false when the file has ended already.
func (s *Shared) Use(key any, end func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.users[key] = end
	return true
}

// Leave ends what Use began.
func (s *Shared) Leave(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, key)
}

// End tells all users that the client is gone, or has other memory now.
func (s *Shared) End() {
	s.mu.Lock()
	s.ended = true
	users := s.users
	s.users = nil
	s.mu.Unlock()
	for _, end := range users {
		end()
	}
}
