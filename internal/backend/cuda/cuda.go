// Package cuda is a thin layer over CUDA's driver API, whose library comes with
// the driver and is loaded at run time: no cgo, no toolkit. Backends use it for
// pinned memory, copies and graphs; metrics and the command line for what GPUs
// there are.
//
// A Device may be used from many goroutines. Handles are not garbage collected:
// whoever makes one destroys it.
package cuda

import (
	"fmt"
	"sync"
	"unsafe"

	"shoal/internal/backend"
)

// An Address is a place in a device's memory; 0 is none.
type Address uintptr

// A Stream is a queue of work on a device: what is added runs in order.
type Stream uintptr

// An Event is a position in a stream.
type Event uintptr

// A Graph is recorded work of a stream that is launched as a whole.
type Graph uintptr

// A Device is a GPU. Calls that add work to a stream return before it is done.
type Device interface {
	// Enter prepares the goroutine's thread for calls of this device, which it
	// keeps until Leave. Every other call must be between the two.
	Enter() error
	Leave()

	// AllocHost returns n bytes of host memory that the device reads and writes
	// directly (pinned memory), aligned to a page.
	AllocHost(n int) ([]byte, error)
	FreeHost(b []byte)
	// Alloc returns n bytes of the device's memory, of undefined content.
	Alloc(n int) (Address, error)
	Free(a Address)
	// Memory returns how much of the device's memory is free, and its size.
	Memory() (free, total int64, err error)

	// OpenShared opens memory that another process has made, by its handle
	// (cudaIpcMemHandle_t), and returns where it is and its size.
	OpenShared(handle []byte) (Address, int, error)
	CloseShared(a Address)
	// Read and Write copy any host memory from and to the device, and return
	// when that is done.
	Read(dst []byte, src Address) error
	Write(dst Address, src []byte) error

	NewStream() (Stream, error)
	DestroyStream(s Stream)
	// NewEvent returns an event. With spin, Synchronize uses a core while it
	// waits and returns a little earlier.
	NewEvent(spin bool) (Event, error)
	DestroyEvent(e Event)

	// CopyIn copies host memory to the device, CopyOut back, Copy within it;
	// Zero clears n bytes. Host memory must be pinned and stay until the work
	// is done.
	CopyIn(dst Address, src []byte, s Stream) error
	CopyOut(dst []byte, src Address, s Stream) error
	Copy(dst, src Address, n int, s Stream) error
	Zero(dst Address, n int, s Stream) error

	// Record makes e the present end of the stream's work.
	Record(e Event, s Stream) error
	// Wait makes later work of the stream wait for e.
	Wait(s Stream, e Event) error
	// Done reports whether the work before e is done, with its error.
	Done(e Event) (bool, error)
	// Synchronize returns when the work before e is done, with its error.
	Synchronize(e Event) error

	// Submit calls f, which adds work to the stream.
	Submit(s Stream, f func() error) error
	// Capture calls f and returns the work that it adds to the stream, which is
	// not run, as a graph.
	Capture(s Stream, f func() error) (Graph, error)
	// Launch adds the graph's work to the stream.
	Launch(g Graph, s Stream) error
	DestroyGraph(g Graph)
}

// Devices are the GPUs that this process may use.
type Devices interface {
	Count() int
	// Device returns the GPU of that number, from 0 on.
	Device(id int) (Device, error)
	// UUID returns the name of a GPU in NVIDIA's tools; empty when there is no
	// such GPU.
	UUID(id int) string
}

// An Error is a failed call of the driver.
type Error struct {
	Call string
	Code int
	Name string // such as CUDA_ERROR_OUT_OF_MEMORY
	Text string
}

// Error returns the driver's name of the error and its text.
func (e *Error) Error() string {
	if e.Code == codeNoMemory {
		return fmt.Sprintf("%s: out of GPU memory (%s)", e.Call, e.Name)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Call, e.Text, e.Name)
}

// codeNoMemory is the driver's code for a lack of memory.
const codeNoMemory = 2

// OutOfMemory reports whether the call failed for a lack of memory.
func (e *Error) OutOfMemory() bool { return e.Code == codeNoMemory }

// Pinned is the backend.Memory of instances on a GPU. It enters the device by
// itself. Beyond the limit of pinned memory it is pages of the process, which
// the driver copies in two steps.
type Pinned struct{ Device Device }

// pool is what Pinned has reserved.
var pool struct {
	mu          sync.Mutex // protects the fields below
	used, limit int64
	pages       map[*byte]bool // what is not pinned
}

// LimitPinned sets how much pinned memory there may be at a time; 0 means any
// amount.
func LimitPinned(bytes int64) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.limit = bytes
}

// PinnedBytes returns how much memory is pinned, and the limit.
func PinnedBytes() (used, limit int64) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	return pool.used, pool.limit
}

// claim reports whether n more bytes may be pinned, and counts them.
func claim(n int) bool {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if pool.limit > 0 && pool.used+int64(n) > pool.limit {
		return false
	}
	pool.used += int64(n)
	return true
}

// Alloc returns n bytes of pinned memory.
func (p Pinned) Alloc(n int) ([]byte, error) {
	if !claim(n) {
		b, err := backend.Pages{}.Alloc(n)
		if err == nil {
			pool.mu.Lock()
			defer pool.mu.Unlock()
			if pool.pages == nil {
				pool.pages = make(map[*byte]bool)
			}
			pool.pages[unsafe.SliceData(b)] = true
		}
		return b, err
	}
	if err := p.Device.Enter(); err != nil {
		return nil, err
	}
	defer p.Device.Leave()
	b, err := p.Device.AllocHost(n)
	if err != nil {
		p.unclaim(n)
	}
	return b, err
}

// Direct returns n bytes of pinned memory that stay for good, nil when there are
// none.
func (p Pinned) Direct(n int) []byte {
	if !claim(n) {
		return nil
	}
	if p.Device.Enter() == nil {
		defer p.Device.Leave()
		if b, err := p.Device.AllocHost(n); err == nil {
			return b
		}
	}
	p.unclaim(n)
	return nil
}

func (Pinned) unclaim(n int) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.used -= int64(n)
}

// Free frees what Alloc returned.
func (p Pinned) Free(b []byte) {
	at := unsafe.SliceData(b)
	pool.mu.Lock()
	paged := pool.pages[at]
	delete(pool.pages, at)
	pool.mu.Unlock()
	if paged {
		backend.Pages{}.Free(b)
		return
	}
	p.unclaim(len(b))
	if p.Device.Enter() == nil {
		defer p.Device.Leave()
		p.Device.FreeHost(b)
	}
}
