package cuda

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The functions of the driver that we use. A suffix is the version of the
// function's interface, which stays.
const (
	fnInit = iota
	fnGetErrorName
	fnGetErrorString
	fnDriverGetVersion
	fnDeviceGetCount
	fnDeviceGet
	fnDeviceGetName
	fnDeviceGetUUID
	fnDeviceTotalMem
	fnDeviceGetAttribute
	fnPrimaryCtxRetain
	fnCtxSetCurrent
	fnMemHostAlloc
	fnMemFreeHost
	fnMemAlloc
	fnMemFree
	fnMemGetInfo
	fnStreamCreate
	fnStreamDestroy
	fnEventCreate
	fnEventDestroy
	fnEventRecord
	fnEventQuery
	fnEventSynchronize
	fnStreamWaitEvent
	fnCopyIn
	fnCopyOut
	fnCopy
	fnZero
	fnBeginCapture
	fnEndCapture
	fnInstantiate
	fnGraphDestroy
	fnExecDestroy
	fnLaunch
	fnOpenShared
	fnCloseShared
	fnAddressRange
	fnCount
)

var names = [fnCount]string{
	"cuInit", "cuGetErrorName", "cuGetErrorString", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
	"cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
	"cuMemHostAlloc", "cuMemFreeHost", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuStreamCreate", "cuStreamDestroy_v2",
	"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuStreamWaitEvent", "cuMemcpyHtoDAsync_v2",
	"cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
	"cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphLaunch",
	"cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuMemGetAddressRange_v2",
}

// Values of the driver's enumerations.
const (
	hostPortable       = 1 // pinned for all devices
	streamNonBlocking  = 1 // no waiting for the default stream
	eventBlockingSync  = 1
	eventDisableTiming = 2
	captureRelaxed     = 2 // other threads may do anything, and this one may reserve memory
	sharedPeerAccess   = 1 // of the device that has the memory, if it is another
	codeNotReady       = 600

	attributeMajor = 75 // of the compute capability
	attributeMinor = 76
)

// LibraryName is the driver's library.
const LibraryName = "libcuda.so.1"

// A Driver is the loaded driver. It implements Devices.
type Driver struct {
	fns     [fnCount]uintptr
	version int
	devices []*device
}

// Open loads the driver, once for the process.
var Open = sync.OnceValues(open)

func open() (*Driver, error) {
	handle, err := purego.Dlopen(LibraryName, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("NVIDIA's driver is not installed: %s was not found", LibraryName)
	}
	d := new(Driver)
	for i, name := range names {
		if d.fns[i], err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("NVIDIA's driver is too old: it has no %s; CUDA 13 needs driver 580 or later", name)
		}
	}
	if err := d.start(); err != nil {
		return nil, fmt.Errorf("NVIDIA's driver does not work: %w", err)
	}
	return d, nil
}

func (d *Driver) start() error {
	if err := d.call(fnInit, 0, 0, 0, 0, 0); err != nil {
		return err
	}
	var n, version int32
	if err := d.call(fnDriverGetVersion, uintptr(unsafe.Pointer(&version)), 0, 0, 0, 0); err != nil {
		return err
	}
	if err := d.call(fnDeviceGetCount, uintptr(unsafe.Pointer(&n)), 0, 0, 0, 0); err != nil {
		return err
	}
	d.version = int(version)
	for id := range n {
		d.devices = append(d.devices, &device{driver: d, id: int(id)})
	}
	return nil
}

// Version returns the newest CUDA that the driver supports, such as "13.0".
func (d *Driver) Version() string {
	return fmt.Sprintf("%d.%d", d.version/1000, d.version%1000/10)
}

// Count implements Devices.
func (d *Driver) Count() int { return len(d.devices) }

// Device implements Devices.
func (d *Driver) Device(id int) (Device, error) {
	if id < 0 || id >= len(d.devices) {
		return nil, fmt.Errorf("there is no GPU %d; the driver has %d", id, len(d.devices))
	}
	dev := d.devices[id]
	return dev, dev.retain()
}

// UUID implements Devices.
func (d *Driver) UUID(id int) string {
	infos, err := d.Infos()
	if err != nil || id < 0 || id >= len(infos) {
		return ""
	}
	return infos[id].UUID
}

// An Info describes a GPU.
type Info struct {
	ID         int
	Name       string
	UUID       string // as NVIDIA's tools show it
	Memory     int64
	Capability string // the compute capability, such as "9.0"
}

// Infos describes the GPUs.
func (d *Driver) Infos() ([]Info, error) {
	var list []Info
	for id := range d.devices {
		i := Info{ID: id}
		var dev, major, minor int32
		var name [128]byte
		var uuid [16]byte
		var total uint64
		err := first(
			d.call(fnDeviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(id), 0, 0, 0),
			d.call(fnDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(id), 0, 0),
			d.call(fnDeviceGetUUID, uintptr(unsafe.Pointer(&uuid[0])), uintptr(id), 0, 0, 0),
			d.call(fnDeviceTotalMem, uintptr(unsafe.Pointer(&total)), uintptr(id), 0, 0, 0),
			d.call(fnDeviceGetAttribute, uintptr(unsafe.Pointer(&major)), attributeMajor, uintptr(id), 0, 0),
			d.call(fnDeviceGetAttribute, uintptr(unsafe.Pointer(&minor)), attributeMinor, uintptr(id), 0, 0))
		if err != nil {
			return list, err
		}
		i.Name, i.Memory, i.Capability = text(name[:]), int64(total), fmt.Sprintf("%d.%d", major, minor)
		i.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
		list = append(list, i)
	}
	return list, nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// text returns a C string of a fixed size.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// arguments are kept outside of the stack, which may move, without an
// allocation for each call.
var arguments = sync.Pool{New: func() any { return new([5]uintptr) }}

// call makes a call. What the arguments point at must not be on a stack that
// can move: the directive sees to that.
//
//go:uintptrescapes
func (d *Driver) call(fn int, a, b, c, e, f uintptr) error {
	args := arguments.Get().(*[5]uintptr)
	*args = [5]uintptr{a, b, c, e, f}
	code, _, _ := purego.SyscallN(d.fns[fn], args[:]...)
	arguments.Put(args)
	if uint32(code) == 0 {
		return nil
	}
	return d.err(fn, uint32(code))
}

func (d *Driver) err(fn int, code uint32) error {
	return &Error{Call: names[fn], Code: int(code), Name: d.describe(fnGetErrorName, code), Text: d.describe(fnGetErrorString, code)}
}

func (d *Driver) describe(fn int, code uint32) string {
	var at uintptr
	purego.SyscallN(d.fns[fn], uintptr(code), uintptr(unsafe.Pointer(&at)))
	if at == 0 {
		return fmt.Sprintf("error %d", code)
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&at)) // not Go's memory; the detour tells vet that this is intended
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// A device is one GPU of the driver.
type device struct {
	driver *Driver
	id     int

	mu      sync.Mutex // protects the field below until it is set
	context uintptr    // the one that CUDA's runtime uses, too
	side    Stream     // for copies of memory that other processes lend
}

// retain makes the device's context, which then stays.
func (d *device) retain() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.context != 0 {
		return nil
	}
	var c uintptr
	if err := d.driver.call(fnPrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), uintptr(d.id), 0, 0, 0); err != nil {
		return fmt.Errorf("GPU %d: %w", d.id, err)
	}
	d.context = c
	return nil
}

// Enter implements Device. The thread keeps the context: the next one to enter
// on it sets its own.
func (d *device) Enter() error {
	runtime.LockOSThread()
	err := d.driver.call(fnCtxSetCurrent, d.context, 0, 0, 0, 0)
	if err != nil {
		runtime.UnlockOSThread()
	}
	return err
}

// Leave implements Device.
func (d *device) Leave() { runtime.UnlockOSThread() }

// AllocHost implements Device.
func (d *device) AllocHost(n int) ([]byte, error) {
	var at uintptr
	if err := d.driver.call(fnMemHostAlloc, uintptr(unsafe.Pointer(&at)), uintptr(n), hostPortable, 0, 0); err != nil {
		return nil, fmt.Errorf("reserve %d bytes of pinned memory: %w", n, err)
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n), nil
}

// FreeHost implements Device.
func (d *device) FreeHost(b []byte) {
	_ = d.driver.call(fnMemFreeHost, address(b), 0, 0, 0, 0) // it cannot fail for memory that AllocHost gave
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Alloc implements Device.
func (d *device) Alloc(n int) (Address, error) {
	var at uintptr
	if err := d.driver.call(fnMemAlloc, uintptr(unsafe.Pointer(&at)), uintptr(n), 0, 0, 0); err != nil {
		return 0, fmt.Errorf("reserve %d bytes of GPU %d: %w", n, d.id, err)
	}
	return Address(at), nil
}

// Free implements Device.
func (d *device) Free(a Address) { _ = d.driver.call(fnMemFree, uintptr(a), 0, 0, 0, 0) }

// Memory implements Device.
func (d *device) Memory() (free, total int64, err error) {
	err = d.driver.call(fnMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)), 0, 0, 0)
	return free, total, err
}

// OpenShared implements Device. The handle is passed by value, which the C
// compiler does on the stack, after the registers.
func (d *device) OpenShared(handle []byte) (Address, int, error) {
	var h [HandleSize / 8]uintptr
	for i := range h {
		h[i] = uintptr(binary.LittleEndian.Uint64(handle[8*i:]))
	}
	at := new(uintptr)
	code, _, _ := purego.SyscallN(d.driver.fns[fnOpenShared], uintptr(unsafe.Pointer(at)), sharedPeerAccess, 0, 0, 0, 0,
		h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7])
	if uint32(code) != 0 {
		return 0, 0, d.driver.err(fnOpenShared, uint32(code))
	}
	var base, size uintptr
	if err := d.driver.call(fnAddressRange, uintptr(unsafe.Pointer(&base)), uintptr(unsafe.Pointer(&size)), *at, 0, 0); err != nil {
		d.CloseShared(Address(*at))
		return 0, 0, err
	}
	return Address(*at), int(base + size - *at), nil
}

// CloseShared implements Device.
func (d *device) CloseShared(a Address) {
	_ = d.driver.call(fnCloseShared, uintptr(a), 0, 0, 0, 0) // it cannot fail for memory that OpenShared gave
}

// Read implements Device.
func (d *device) Read(dst []byte, src Address) error {
	return d.transfer(func(s Stream) error { return d.CopyOut(dst, src, s) })
}

// Write implements Device.
func (d *device) Write(dst Address, src []byte) error {
	return d.transfer(func(s Stream) error { return d.CopyIn(dst, src, s) })
}

// transfer waits for the copies that f adds to a stream.
func (d *device) transfer(f func(Stream) error) error {
	s, err := d.sideStream()
	if err != nil {
		return err
	}
	e, err := d.NewEvent(false)
	if err != nil {
		return err
	}
	defer d.DestroyEvent(e)
	failed := f(s)
	return first(failed, d.Record(e, s), d.Synchronize(e))
}

func (d *device) sideStream() (_ Stream, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.side == 0 {
		d.side, err = d.NewStream()
	}
	return d.side, err
}

// NewStream implements Device.
func (d *device) NewStream() (Stream, error) {
	var s uintptr
	err := d.driver.call(fnStreamCreate, uintptr(unsafe.Pointer(&s)), streamNonBlocking, 0, 0, 0)
	return Stream(s), err
}

// DestroyStream implements Device.
func (d *device) DestroyStream(s Stream) { _ = d.driver.call(fnStreamDestroy, uintptr(s), 0, 0, 0, 0) }

// NewEvent implements Device.
func (d *device) NewEvent(spin bool) (Event, error) {
	flags := uintptr(eventDisableTiming | eventBlockingSync)
	if spin {
		flags = eventDisableTiming
	}
	var e uintptr
	err := d.driver.call(fnEventCreate, uintptr(unsafe.Pointer(&e)), flags, 0, 0, 0)
	return Event(e), err
}

// DestroyEvent implements Device.
func (d *device) DestroyEvent(e Event) { _ = d.driver.call(fnEventDestroy, uintptr(e), 0, 0, 0, 0) }

// CopyIn implements Device.
func (d *device) CopyIn(dst Address, src []byte, s Stream) error {
	return d.driver.call(fnCopyIn, uintptr(dst), address(src), uintptr(len(src)), uintptr(s), 0)
}

// CopyOut implements Device.
func (d *device) CopyOut(dst []byte, src Address, s Stream) error {
	return d.driver.call(fnCopyOut, address(dst), uintptr(src), uintptr(len(dst)), uintptr(s), 0)
}

// Copy implements Device.
func (d *device) Copy(dst, src Address, n int, s Stream) error {
	return d.driver.call(fnCopy, uintptr(dst), uintptr(src), uintptr(n), uintptr(s), 0)
}

// Zero implements Device.
func (d *device) Zero(dst Address, n int, s Stream) error {
	return d.driver.call(fnZero, uintptr(dst), 0, uintptr(n), uintptr(s), 0)
}

// Record implements Device.
func (d *device) Record(e Event, s Stream) error {
	return d.driver.call(fnEventRecord, uintptr(e), uintptr(s), 0, 0, 0)
}

// Wait implements Device.
func (d *device) Wait(s Stream, e Event) error {
	return d.driver.call(fnStreamWaitEvent, uintptr(s), uintptr(e), 0, 0, 0)
}

// Done implements Device.
func (d *device) Done(e Event) (bool, error) {
	args := arguments.Get().(*[5]uintptr)
	*args = [5]uintptr{uintptr(e)}
	code, _, _ := purego.SyscallN(d.driver.fns[fnEventQuery], args[:]...)
	arguments.Put(args)
	switch uint32(code) {
	case 0:
		return true, nil
	case codeNotReady:
		return false, nil
	}
	return false, d.driver.err(fnEventQuery, uint32(code))
}

// Synchronize implements Device.
func (d *device) Synchronize(e Event) error {
	return d.driver.call(fnEventSynchronize, uintptr(e), 0, 0, 0, 0)
}

// Submit implements Device.
func (d *device) Submit(_ Stream, f func() error) error { return f() }

// Capture implements Device.
func (d *device) Capture(s Stream, f func() error) (Graph, error) {
	if err := d.driver.call(fnBeginCapture, uintptr(s), captureRelaxed, 0, 0, 0); err != nil {
		return 0, err
	}
	failed := f()
	var graph, exec uintptr
	err := d.driver.call(fnEndCapture, uintptr(s), uintptr(unsafe.Pointer(&graph)), 0, 0, 0)
	if graph != 0 {
		defer d.driver.call(fnGraphDestroy, graph, 0, 0, 0, 0) //nolint:errcheck // it cannot fail for a graph that EndCapture gave
	}
	if err := first(failed, err); err != nil {
		return 0, err
	}
	if graph == 0 {
		return 0, fmt.Errorf("nothing was captured")
	}
	err = d.driver.call(fnInstantiate, uintptr(unsafe.Pointer(&exec)), graph, 0, 0, 0)
	return Graph(exec), err
}

// Launch implements Device.
func (d *device) Launch(g Graph, s Stream) error {
	return d.driver.call(fnLaunch, uintptr(g), uintptr(s), 0, 0, 0)
}

// DestroyGraph implements Device.
func (d *device) DestroyGraph(g Graph) { _ = d.driver.call(fnExecDestroy, uintptr(g), 0, 0, 0, 0) }
