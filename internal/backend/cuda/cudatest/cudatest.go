// Package cudatest has GPUs that are not there, for tests: the same interface as
// the real ones, with the host's memory as the device's. Streams run by
// themselves, as on a device, so that work whose order nobody asked for is found
// by the race detector or by wrong results. Every call is recorded.
package cudatest

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"shoal/internal/backend/cuda"
)

// Devices are so many GPUs. The zero value has none.
type Devices []*Device

// New returns n GPUs.
func New(n int) Devices {
	var d Devices
	for id := range n {
		d = append(d, &Device{ID: id, host: make(map[uintptr][]byte), memory: make(map[cuda.Address][]byte), streams: make(map[cuda.Stream]*stream), events: make(map[cuda.Event]*event), graphs: make(map[cuda.Graph]func() error)})
	}
	return d
}

// Count implements cuda.Devices.
func (d Devices) Count() int { return len(d) }

// Device implements cuda.Devices.
func (d Devices) Device(id int) (cuda.Device, error) {
	if id < 0 || id >= len(d) {
		return nil, fmt.Errorf("there is no GPU %d; the driver has %d", id, len(d))
	}
	return d[id], nil
}

// UUID implements cuda.Devices.
func (d Devices) UUID(id int) string { return fmt.Sprintf("GPU-%d", id) }

// A Device is a GPU that is not there.
type Device struct {
	ID int
	// Fail makes a call fail, by its name, such as "Alloc"; nil means none.
	Fail func(call string) error

	mu      sync.Mutex // protects the fields below
	calls   []string
	next    uintptr
	entered int
	host    map[uintptr][]byte
	memory  map[cuda.Address][]byte
	streams map[cuda.Stream]*stream
	events  map[cuda.Event]*event
	graphs  map[cuda.Graph]func() error
	lent    map[string][]byte // what another process lends, by its handle
}

// A stream is a goroutine that does its work in order.
type stream struct {
	name   string
	work   chan func()
	ended  chan struct{}
	failed error // of the last work; for the stream's goroutine
}

// An event is the end of a stream's work at the time of the last Record.
type event struct {
	name string
	done chan struct{}
	err  error // set before done is closed
}

// OutOfMemory is the driver's error.
var OutOfMemory = &cuda.Error{Call: "cuMemAlloc_v2", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"}

// Calls returns the calls since the last, each with its streams and events by
// the order of their making.
func (d *Device) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// Left returns what was not given back.
func (d *Device) Left() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var left []string
	for what, n := range map[string]int{"host memory": len(d.host), "memory": len(d.memory), "streams": len(d.streams), "events": len(d.events), "graphs": len(d.graphs), "entered": d.entered} {
		if n != 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	return strings.Join(left, ", ")
}

// note records a call and returns its error.
func (d *Device) note(call, format string, args ...any) error {
	d.mu.Lock()
	d.calls = append(d.calls, strings.TrimSpace(call+" "+fmt.Sprintf(format, args...)))
	d.mu.Unlock()
	if d.Fail != nil {
		return d.Fail(call)
	}
	return nil
}

func (d *Device) handle() uintptr {
	d.next++
	return d.next
}

// Enter implements cuda.Device.
func (d *Device) Enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entered++
	return nil
}

// Leave implements cuda.Device.
func (d *Device) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entered--
}

// page is the alignment of memory.
const page = 4096

func aligned(n int) []byte {
	b := make([]byte, n+page)
	at := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	return b[at : at+n : at+n]
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// AllocHost implements cuda.Device.
func (d *Device) AllocHost(n int) ([]byte, error) {
	if err := d.note("AllocHost", "%d", n); err != nil {
		return nil, err
	}
	b := aligned(n)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host[address(b)] = b
	return b, nil
}

// FreeHost implements cuda.Device.
func (d *Device) FreeHost(b []byte) {
	_ = d.note("FreeHost", "")
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host[address(b)] == nil {
		panic("cudatest: FreeHost of memory that AllocHost did not give")
	}
	delete(d.host, address(b))
}

// Alloc implements cuda.Device.
func (d *Device) Alloc(n int) (cuda.Address, error) {
	if err := d.note("Alloc", ""); err != nil {
		return 0, err
	}
	b := aligned(n)
	for i := range b {
		b[i] = 0xAA // not zero, as on a device
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory[cuda.Address(address(b))] = b
	return cuda.Address(address(b)), nil
}

// Free implements cuda.Device.
func (d *Device) Free(a cuda.Address) {
	_ = d.note("Free", "")
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.memory, a)
}

// at returns n bytes of the device's memory.
func (d *Device) at(a cuda.Address, n int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	for from, b := range d.memory {
		if a >= from && int(a-from)+n <= len(b) {
			return b[a-from:][:n]
		}
	}
	panic(fmt.Sprintf("cudatest: %d bytes at %x are outside of the device's memory", n, a))
}

// Memory implements cuda.Device.
func (d *Device) Memory() (free, total int64, err error) { return 1 << 20, 1 << 30, nil }

// Lend makes memory that another process lends, and returns its handle. The
// test sees what is written.
func (d *Device) Lend(b []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	handle := make([]byte, cuda.HandleSize)
	handle[0] = byte(d.handle())
	if d.lent == nil {
		d.lent = make(map[string][]byte)
	}
	d.lent[string(handle)] = b
	return handle
}

// OpenShared implements cuda.Device.
func (d *Device) OpenShared(handle []byte) (cuda.Address, int, error) {
	if err := d.note("OpenShared", ""); err != nil {
		return 0, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.lent[string(handle)]
	if b == nil {
		return 0, 0, &cuda.Error{Call: "cuIpcOpenMemHandle_v2", Code: 1, Name: "CUDA_ERROR_INVALID_VALUE", Text: "invalid argument"}
	}
	d.memory[cuda.Address(address(b))] = b
	return cuda.Address(address(b)), len(b), nil
}

// CloseShared implements cuda.Device.
func (d *Device) CloseShared(a cuda.Address) {
	_ = d.note("CloseShared", "")
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.memory, a)
}

// Read implements cuda.Device.
func (d *Device) Read(dst []byte, src cuda.Address) error {
	copy(dst, d.at(src, len(dst)))
	return d.note("Read", "%d", len(dst))
}

// Write implements cuda.Device.
func (d *Device) Write(dst cuda.Address, src []byte) error {
	copy(d.at(dst, len(src)), src)
	return d.note("Write", "%d", len(src))
}

// NewStream implements cuda.Device.
func (d *Device) NewStream() (cuda.Stream, error) {
	if err := d.note("NewStream", ""); err != nil {
		return 0, err
	}
	s := &stream{work: make(chan func(), 64), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for f := range s.work {
			f()
		}
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	h := cuda.Stream(d.handle())
	s.name = fmt.Sprintf("s%d", h)
	d.streams[h] = s
	return h, nil
}

func (d *Device) stream(s cuda.Stream) *stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams[s]
}

// DestroyStream implements cuda.Device.
func (d *Device) DestroyStream(s cuda.Stream) {
	_ = d.note("DestroyStream", "")
	at := d.stream(s)
	close(at.work)
	<-at.ended
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.streams, s)
}

// NewEvent implements cuda.Device.
func (d *Device) NewEvent(bool) (cuda.Event, error) {
	if err := d.note("NewEvent", ""); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h := cuda.Event(d.handle())
	e := &event{name: fmt.Sprintf("e%d", h), done: make(chan struct{})}
	close(e.done) // an event without work is done
	d.events[h] = e
	return h, nil
}

// DestroyEvent implements cuda.Device.
func (d *Device) DestroyEvent(e cuda.Event) {
	_ = d.note("DestroyEvent", "")
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.events, e)
}

// CopyIn implements cuda.Device.
func (d *Device) CopyIn(dst cuda.Address, src []byte, s cuda.Stream) error {
	at := d.stream(s)
	if err := d.note("CopyIn", "%s %d", at.name, len(src)); err != nil {
		return err
	}
	d.pinned(src)
	to := d.at(dst, len(src))
	at.work <- func() { copy(to, src) }
	return nil
}

// pinned panics for host memory that is not pinned.
func (d *Device) pinned(b []byte) {
	if len(b) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for from, h := range d.host {
		if at := address(b); at >= from && at+uintptr(len(b)) <= from+uintptr(len(h)) {
			return
		}
	}
	panic("cudatest: a copy of memory that is not pinned")
}

// CopyOut implements cuda.Device.
func (d *Device) CopyOut(dst []byte, src cuda.Address, s cuda.Stream) error {
	at := d.stream(s)
	if err := d.note("CopyOut", "%s %d", at.name, len(dst)); err != nil {
		return err
	}
	d.pinned(dst)
	from := d.at(src, len(dst))
	at.work <- func() { copy(dst, from) }
	return nil
}

// Copy implements cuda.Device.
func (d *Device) Copy(dst, src cuda.Address, n int, s cuda.Stream) error {
	at := d.stream(s)
	if err := d.note("Copy", "%s %d", at.name, n); err != nil {
		return err
	}
	to, from := d.at(dst, n), d.at(src, n)
	at.work <- func() { copy(to, from) }
	return nil
}

// Zero implements cuda.Device.
func (d *Device) Zero(dst cuda.Address, n int, s cuda.Stream) error {
	at := d.stream(s)
	if err := d.note("Zero", "%s %d", at.name, n); err != nil {
		return err
	}
	to := d.at(dst, n)
	at.work <- func() { clear(to) }
	return nil
}

// Record implements cuda.Device.
func (d *Device) Record(e cuda.Event, s cuda.Stream) error {
	at := d.stream(s)
	d.mu.Lock()
	ev := &event{name: d.events[e].name, done: make(chan struct{})}
	d.events[e] = ev
	d.mu.Unlock()
	err := d.note("Record", "%s %s", ev.name, at.name)
	at.work <- func() {
		ev.err, at.failed = at.failed, nil
		close(ev.done)
	}
	return err
}

func (d *Device) event(e cuda.Event) *event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events[e]
}

// Wait implements cuda.Device.
func (d *Device) Wait(s cuda.Stream, e cuda.Event) error {
	at, ev := d.stream(s), d.event(e)
	if err := d.note("Wait", "%s %s", at.name, ev.name); err != nil {
		return err
	}
	at.work <- func() { <-ev.done }
	return nil
}

// Done implements cuda.Device.
func (d *Device) Done(e cuda.Event) (bool, error) {
	ev := d.event(e)
	select {
	case <-ev.done:
		return true, ev.err
	default:
		return false, nil
	}
}

// Synchronize implements cuda.Device.
func (d *Device) Synchronize(e cuda.Event) error {
	ev := d.event(e)
	err := d.note("Synchronize", "%s", ev.name)
	<-ev.done
	if err == nil {
		err = ev.err
	}
	return err
}

// Submit implements cuda.Device: what f does is done at once, so that the
// stream's work has to be done before.
func (d *Device) Submit(s cuda.Stream, f func() error) error {
	at := d.stream(s)
	if err := d.note("Submit", "%s", at.name); err != nil {
		return err
	}
	done := make(chan error)
	at.work <- func() { done <- f() }
	return <-done
}

// Capture implements cuda.Device: f is called by every Launch.
func (d *Device) Capture(s cuda.Stream, f func() error) (cuda.Graph, error) {
	if err := d.note("Capture", "%s", d.stream(s).name); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g := cuda.Graph(d.handle())
	d.graphs[g] = f
	return g, nil
}

// Launch implements cuda.Device.
func (d *Device) Launch(g cuda.Graph, s cuda.Stream) error {
	at := d.stream(s)
	if err := d.note("Launch", "%s", at.name); err != nil {
		return err
	}
	d.mu.Lock()
	f := d.graphs[g]
	d.mu.Unlock()
	at.work <- func() {
		if err := f(); err != nil {
			at.failed = err
		}
	}
	return nil
}

// DestroyGraph implements cuda.Device.
func (d *Device) DestroyGraph(g cuda.Graph) {
	_ = d.note("DestroyGraph", "")
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.graphs, g)
}
