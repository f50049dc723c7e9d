package ort

import (
	"errors"
	"runtime"
	"strconv"
	"unsafe"

	"github.com/ebitengine/purego"

	"shoal/internal/tensor"
)

// A Session is a loaded model. Its runs may overlap.
type Session struct {
	lib    *Library
	handle uintptr
}

// NewSession loads the model file at path. The caller closes the session.
func (l *Library) NewSession(path string, o Options) (*Session, error) {
	so, err := l.sessionOptions(o)
	if err != nil {
		return nil, err
	}
	defer l.release(fnReleaseSessionOptions, so)
	s := &Session{lib: l}
	p := cString(path)
	if err := l.call(fnCreateSession, l.env, uintptr(unsafe.Pointer(&p[0])), so, uintptr(unsafe.Pointer(&s.handle))); err != nil {
		return nil, err
	}
	return s, nil
}

// Close frees the session. No run may be under way.
func (s *Session) Close() {
	s.lib.release(fnReleaseSession, s.handle)
	s.handle = 0
}

// Library returns the library that the session belongs to.
func (s *Session) Library() *Library { return s.lib }

// A TensorInfo describes an input or output of a session.
type TensorInfo struct {
	Name string
	// Kind is empty for tensors, otherwise the name of another kind of value,
	// such as "ONNX_TYPE_SEQUENCE"; the other fields are then not set.
	Kind string
	Type tensor.Type  // Invalid for element types that no protocol has
	Dims tensor.Shape // -1 for dimensions that the graph leaves open
}

// Inputs describes the inputs that a run must have.
func (s *Session) Inputs() ([]TensorInfo, error) {
	return s.infos(fnGetInputCount, fnGetInputName, fnGetInputTypeInfo)
}

// Outputs describes the outputs of a run.
func (s *Session) Outputs() ([]TensorInfo, error) {
	return s.infos(fnGetOutputCount, fnGetOutputName, fnGetOutputTypeInfo)
}

// Overridable describes the optional inputs, which have a value in the model.
func (s *Session) Overridable() ([]TensorInfo, error) {
	return s.infos(fnGetOverridableInitializerCount, fnGetOverridableInitializerName, fnGetOverridableInitializerInfo)
}

func (s *Session) infos(count, name, info int) ([]TensorInfo, error) {
	l := s.lib
	var n uintptr
	if err := l.call(count, s.handle, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	list := make([]TensorInfo, n)
	for i := range list {
		var text, ti uintptr
		if err := l.call(name, s.handle, uintptr(i), l.allocator, uintptr(unsafe.Pointer(&text))); err != nil {
			return nil, err
		}
		list[i].Name = goString(text)
		if err := l.call(fnAllocatorFree, l.allocator, text); err != nil {
			return nil, err
		}
		if err := l.call(info, s.handle, uintptr(i), uintptr(unsafe.Pointer(&ti))); err != nil {
			return nil, err
		}
		err := l.describe(&list[i], ti)
		l.release(fnReleaseTypeInfo, ti)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// describe fills in t from the library's type information.
func (l *Library) describe(t *TensorInfo, info uintptr) error {
	var kind, element uint32
	if err := l.call(fnGetOnnxTypeFromTypeInfo, info, uintptr(unsafe.Pointer(&kind))); err != nil {
		return err
	}
	if kind != onnxTypeTensor {
		t.Kind = kindName(kind)
		return nil
	}
	var shape, rank uintptr
	if err := l.call(fnCastTypeInfoToTensorInfo, info, uintptr(unsafe.Pointer(&shape))); err != nil {
		return err
	}
	if err := l.call(fnGetTensorElementType, shape, uintptr(unsafe.Pointer(&element))); err != nil {
		return err
	}
	t.Type = typeOf(element)
	if err := l.call(fnGetDimensionsCount, shape, uintptr(unsafe.Pointer(&rank))); err != nil {
		return err
	}
	t.Dims = make(tensor.Shape, rank)
	if rank == 0 {
		return nil
	}
	err := l.call(fnGetDimensions, shape, uintptr(unsafe.Pointer(&t.Dims[0])), rank)
	for i, d := range t.Dims {
		if d < 0 {
			t.Dims[i] = -1
		}
	}
	return err
}

// RunOptions are options of single runs.
type RunOptions struct {
	lib    *Library
	handle uintptr
}

// NewRunOptions returns run options with the given entries. The caller closes
// them.
func (l *Library) NewRunOptions(config map[string]string) (*RunOptions, error) {
	r := &RunOptions{lib: l}
	if err := l.call(fnCreateRunOptions, uintptr(unsafe.Pointer(&r.handle))); err != nil {
		return nil, err
	}
	for key, value := range config {
		k, v := cString(key), cString(value)
		if err := l.call(fnAddRunConfigEntry, r.handle, uintptr(unsafe.Pointer(&k[0])), uintptr(unsafe.Pointer(&v[0]))); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Close frees the options.
func (r *RunOptions) Close() {
	r.lib.release(fnReleaseRunOptions, r.handle)
	r.handle = 0
}

// Names are the names of a run's inputs or outputs in the library's form. They
// are made once and do not change.
type Names struct {
	addresses []uintptr
	keep      [][]byte
}

// NewNames returns the names.
func NewNames(names []string) *Names {
	n := new(Names)
	n.addresses, n.keep = cStrings(names)
	return n
}

// Len returns the number of names.
func (n *Names) Len() int { return len(n.addresses) }

// A Value is a tensor of the library; 0 is none.
type Value uintptr

// A Memory says where tensors lie. The zero Memory is the host's.
type Memory uintptr

// NewMemory returns the memory of a device by the library's name for its kind,
// such as "Cuda". The caller frees it.
func (l *Library) NewMemory(name string, device int) (Memory, error) {
	var m Memory
	n := cString(name)
	err := l.call(fnCreateMemoryInfo, uintptr(unsafe.Pointer(&n[0])), allocatorDevice, uintptr(device), memoryDefault, uintptr(unsafe.Pointer(&m)))
	return m, err
}

// FreeMemory frees what NewMemory returned, not the device's memory itself.
func (l *Library) FreeMemory(m Memory) { l.release(fnReleaseMemoryInfo, uintptr(m)) }

// ErrUnknown means that the library is too old to say.
var ErrUnknown = errors.New("this ONNX Runtime does not say")

// OnHost returns the names of the inputs and outputs that the session has in
// the host's memory: the processor reads or writes them, whatever device runs the
// model. It is ErrUnknown before ONNX Runtime 1.23.
func (s *Session) OnHost() ([]string, error) {
	if s.lib.newer == nil {
		return nil, ErrUnknown
	}
	inputs, err := s.Inputs()
	if err != nil {
		return nil, err
	}
	names, err := s.onHost(fnGetMemoryInfoForInputs, inputs)
	if err != nil {
		return nil, err
	}
	outputs, err := s.Outputs()
	if err != nil {
		return nil, err
	}
	more, err := s.onHost(fnGetMemoryInfoForOutputs, outputs)
	return append(names, more...), err
}

func (s *Session) onHost(fn int, list []TensorInfo) (names []string, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	memories := make([]uintptr, len(list))
	status, _, _ := purego.SyscallN(s.lib.newer[fn], s.handle, uintptr(unsafe.Pointer(&memories[0])), uintptr(len(memories)))
	if err := s.lib.err(status); err != nil {
		return nil, err
	}
	for i, m := range memories {
		device := new(int32)
		purego.SyscallN(s.lib.fns[fnMemoryInfoGetDeviceType], m, uintptr(unsafe.Pointer(device)))
		if *device == deviceHost {
			names = append(names, list[i].Name)
		}
	}
	return names, nil
}

// ArenaBytes returns how much of a device's memory the session's arena has
// reserved; 0 when the library does not know.
func (s *Session) ArenaBytes(m Memory) (int64, error) {
	l := s.lib
	if l.newer == nil {
		return 0, nil
	}
	var allocator, pairs uintptr
	status, _, _ := purego.SyscallN(l.newer[fnCreateAllocator], s.handle, uintptr(m), uintptr(unsafe.Pointer(&allocator)))
	if err := l.err(status); err != nil {
		return 0, err
	}
	defer purego.SyscallN(l.newer[fnReleaseAllocator], allocator)
	status, _, _ = purego.SyscallN(l.newer[fnAllocatorGetStats], allocator, uintptr(unsafe.Pointer(&pairs)))
	if err := l.err(status); err != nil {
		return 0, err
	}
	defer purego.SyscallN(l.newer[fnReleaseKeyValuePairs], pairs)
	key := cString("TotalAllocated")
	at, _, _ := purego.SyscallN(l.newer[fnGetKeyValue], pairs, uintptr(unsafe.Pointer(&key[0])))
	if at == 0 {
		return 0, nil
	}
	return strconv.ParseInt(goString(at), 10, 64)
}

// NewTensor returns a tensor over size bytes of host memory at address. The
// memory must not be Go's and must outlive the tensor.
func (l *Library) NewTensor(t tensor.Type, shape tensor.Shape, address uintptr, size int) (Value, error) {
	return l.NewTensorIn(0, t, shape, address, size)
}

// NewTensorIn is NewTensor for memory of any kind.
func (l *Library) NewTensorIn(m Memory, t tensor.Type, shape tensor.Shape, address uintptr, size int) (Value, error) {
	if m == 0 {
		m = Memory(l.cpu)
	}
	var v Value
	var none int64
	dims := &none
	if len(shape) > 0 {
		dims = &shape[0]
	}
	err := l.call(fnCreateTensorWithData, uintptr(m), address, uintptr(size), uintptr(unsafe.Pointer(dims)), uintptr(len(shape)),
		elementOf(t), uintptr(unsafe.Pointer(&v)))
	runtime.KeepAlive(shape)
	return v, err
}

// NewOwnTensor returns a tensor whose memory belongs to the library: the only
// kind for strings.
func (l *Library) NewOwnTensor(t tensor.Type, shape tensor.Shape) (Value, error) {
	var v Value
	var none int64
	dims := &none
	if len(shape) > 0 {
		dims = &shape[0]
	}
	err := l.call(fnCreateTensor, l.allocator, uintptr(unsafe.Pointer(dims)), uintptr(len(shape)), elementOf(t), uintptr(unsafe.Pointer(&v)))
	runtime.KeepAlive(shape)
	return v, err
}

// Release frees a value; 0 is allowed.
func (l *Library) Release(v Value) { l.release(fnReleaseValue, uintptr(v)) }
