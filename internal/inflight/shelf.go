package inflight

import (
	"runtime"
	"sync"
)

// A shelf keeps large idle buffers of one size for all processors. sync.Pool
// would keep some for each of Go's processors, and more of them the more there
// are.
type shelf struct {
	mu     sync.Mutex
	idle   []*[]byte // the last used is the last
	unused int       // so many of the first were not needed since the last collection
}

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
	return b
}

func (s *shelf) put(b *[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, b)
}

// age drops the buffers that were not needed since the last call.
func (s *shelf) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := copy(s.idle, s.idle[s.unused:])
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
