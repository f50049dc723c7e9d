package python

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
)

// A memory is the file that the server and one worker share, with the eventfds
// by which they wake each other. It lives until the worker is gone and the last
// slot that holds a response is given back.
type memory struct {
	file       *os.File
	ring, back *os.File // eventfds: to the worker, and to us
	fd         int
	ringFD     int
	backFD     int
	page       []byte
	sent       uint64
	token      [8]byte       // what is read from back
	one        [8]byte       // what is written to ring
	stamps     atomic.Uint64 // of tables of inputs: no two of them have the same

	mu      sync.Mutex // protects the fields below
	idle    []*slot
	numbers []int // of slots that were freed
	slots   int   // how many numbers there are
	out     int   // slots that are not idle
	retired bool  // the worker is gone
}

// untaken reports whether the worker has not even looked at the last batch.
func (m *memory) untaken() bool { return binary.LittleEndian.Uint64(m.page[takenAt:]) < m.sent }
