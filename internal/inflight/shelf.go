package inflight

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A shelf keeps large idle buffers of one size for all processors. sync.Pool
// would keep some for each of Go's processors, and more of them the more there
// are.
type shelf struct {
	mu     sync.Mutex
	idle   []*[]byte // the last used is the last
	unused int       // so many of the first were not needed since the last collection
}

// idleBytes is what all shelves keep.
var idleBytes atomic.Int64

func (s *shelf) get() *[]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	b := s.idle[n-1]
	s.idle[n-1] = nil
	s.idle = s.idle[:n-1]
	s.unused = min(s.unused, n-1)
	idleBytes.Add(-int64(cap(*b)))
	return b
}

func (s *shelf) put(b *[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, b)
	idleBytes.Add(int64(cap(*b)))
}

// age drops the buffers that were not needed since the last call.
func (s *shelf) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(s.unused)
}

// drop drops all buffers.
func (s *shelf) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(len(s.idle))
}

// dropLocked drops the first n buffers.
func (s *shelf) dropLocked(n int) {
	for _, b := range s.idle[:n] {
		idleBytes.Add(-int64(cap(*b)))
	}
	left := copy(s.idle, s.idle[n:])
	clear(s.idle[left:])
	s.idle = s.idle[:left]
	s.unused = left
}

// ageShelves ages all shelves after each garbage collection, from the first call
// on.
var ageShelves = sync.OnceFunc(afterCollections)

func afterCollections() {
	type mark struct{ _ *int } // a pointer: it is collected by itself
	runtime.AddCleanup(new(mark), func(int) {
		dropUnused()
		afterCollections()
	}, 0)
}

func dropUnused() {
	for i := range shelves {
		shelves[i].age()
	}
}

func dropIdle() {
	for i := range shelves {
		shelves[i].drop()
	}
}
