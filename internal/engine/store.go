package engine

import (
	"os"
	"sync/atomic"
)

// A store is the folder of a model whose files a client has sent. It is removed
// when the last version that was loaded from it is freed. A nil store stands
// for a folder of the repository, which stays.
type store struct {
	dir   string
	users atomic.Int32
}

// newStore returns a store with one user.
func newStore(dir string) *store {
	s := &store{dir: dir}
	s.users.Store(1)
	return s
}

// use returns s with one more user.
func (s *store) use() *store {
	if s != nil {
		s.users.Add(1)
	}
	return s
}

// release removes a user.
func (s *store) release() {
	if s != nil && s.users.Add(-1) == 0 {
		_ = os.RemoveAll(s.dir) // our own temporary folder
	}
}
