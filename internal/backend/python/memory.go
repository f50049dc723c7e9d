package python

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
)

// A memory is the file that the server and one worker share, with the eventfds
// that wake the other side. It lives until the worker is gone and the last slot
// with a response is given back.
type memory struct {
	file       *os.File
	ring, back *os.File // eventfds: wake the worker, and us
	fd         int
	ringFD     int
	backFD     int
	page       []byte
	sent       uint64
	token      [8]byte       // what is read from back
	one        [8]byte       // what is written to ring
	stamps     atomic.Uint64 // a distinct stamp for each table of inputs
	// pinned means that the worker registers its memory with a GPU, which then
	// reads those pages for ever: pages that were freed and came back would be
	// others.
	pinned bool

	mu      sync.Mutex // protects the fields below
	idle    []*slot
	numbers []int // of freed slots
	slots   int   // how many numbers there are
	out     int   // slots that are not idle
	retired bool  // the worker is gone
}

// taken returns how many batches the worker has taken.
func (m *memory) taken() uint64 { return binary.LittleEndian.Uint64(m.page[takenAt:]) }

// pendingCall returns where the message of the call is that the thread with the
// batch waits for; ok is false when it does not.
func (m *memory) pendingCall() (slot int, at, size uint64, ok bool) {
	number := binary.LittleEndian.Uint64(m.page[callSlotAt:])
	if number == 0 {
		return 0, 0, 0, false
	}
	return int(number - 1), binary.LittleEndian.Uint64(m.page[callAt:]), binary.LittleEndian.Uint64(m.page[callSizeAt:]), true
}
