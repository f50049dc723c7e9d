package inflight

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A shelf provides large buffers of one size and keeps idle ones for all
// processors. Their memory is not Go's: the garbage collector would free it some
// time after it is dropped, and until then a process with a small budget would
// have twice that.
type shelf struct {
	mu     sync.Mutex
	idle   []*[]byte // the last used is the last
	unused int       // so many of the first were not needed since the last collection
	empty  []*[]byte // buffers without pages
}

var (
	idleBytes  atomic.Int64 // what all shelves keep
	shelfBytes atomic.Int64 // what all shelves have given out or keep
)

// get returns an idle buffer, or nil.
func (s *shelf) get() *[]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := pop(&s.idle)
	if b == nil {
		return nil
	}
	s.unused = min(s.unused, len(s.idle))
	idleBytes.Add(-int64(cap(*b)))
	return b
}

// add returns one more buffer of n bytes.
func (s *shelf) add(n int) *[]byte {
	shelfBytes.Add(int64(n))
	s.mu.Lock()
	b := pop(&s.empty)
	s.mu.Unlock()
	if b == nil {
		pages := newPages(n)
		b = &pages
	}
	return b
}

// pop takes the last one of all, nil when there is none.
func pop(all *[]*[]byte) *[]byte {
	n := len(*all)
	if n == 0 {
		return nil
	}
	b := (*all)[n-1]
	(*all)[n-1] = nil
	*all = (*all)[:n-1]
	return b
}

func (s *shelf) put(b *[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, b)
	idleBytes.Add(int64(cap(*b)))
}

// discard frees the memory of a buffer that is not kept.
func (s *shelf) discard(b *[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discardLocked(b)
}

func (s *shelf) discardLocked(b *[]byte) {
	*b = (*b)[:cap(*b)]
	shelfBytes.Add(-int64(len(*b)))
	if freePages(*b) {
		s.empty = append(s.empty, b)
	}
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
		s.discardLocked(b)
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
