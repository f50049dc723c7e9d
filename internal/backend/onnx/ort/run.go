package ort

import (
	"unsafe"

	"github.com/ebitengine/purego"

	"shoal/internal/tensor"
)

// A Call makes the library's calls on the hot path without allocating: its
// arguments and results are in memory that lives as long as the Call. It is for
// one goroutine at a time.
type Call struct {
	lib  *Library
	run  [8]uintptr // the arguments of Run, set by Prepare
	args [7]uintptr // the arguments of the other calls
	out  [2]uintptr // where they put their results

	// The objects whose addresses are in the arguments. Storing them here keeps
	// them alive, and off the stack, which may move.
	session         *Session
	inputs, outputs *Names
	in, values      []Value
	dims            tensor.Shape
	bytes           []byte
	offsets         []uint64
}

// NewCall returns a Call for runs of s. The run options may be nil.
func NewCall(s *Session, o *RunOptions) *Call {
	c := &Call{lib: s.lib, session: s}
	c.run[0] = s.handle
	if o != nil {
		c.run[1] = o.handle
	}
	return c
}

// Run runs the session once with the named inputs and outputs. The library
// allocates an output that is 0 and stores it there; the caller releases it.
// Run returns when nothing uses the values any more.
func (c *Call) Run(inputs *Names, in []Value, outputs *Names, out []Value) error {
	if len(in) != inputs.Len() || len(out) != outputs.Len() {
		panic("BUG: ort: as many values as names are needed")
	}
	c.inputs, c.outputs, c.in, c.values = inputs, outputs, in, out
	c.run[2] = first(inputs.addresses)
	c.run[3] = uintptr(unsafe.Pointer(unsafe.SliceData(in)))
	c.run[4] = uintptr(len(in))
	c.run[5] = first(outputs.addresses)
	c.run[6] = uintptr(len(out))
	c.run[7] = uintptr(unsafe.Pointer(unsafe.SliceData(out)))
	status, _, _ := purego.SyscallN(c.lib.fns[fnRun], c.run[:]...)
	return c.lib.err(status)
}

// invoke calls a function with the first n prepared arguments.
func (c *Call) invoke(fn, n int) error {
	status, _, _ := purego.SyscallN(c.lib.fns[fn], c.args[:n]...)
	return c.lib.err(status)
}

func (c *Call) result(i int) uintptr { return uintptr(unsafe.Pointer(&c.out[i])) }

// Release frees a value; 0 is allowed.
func (c *Call) Release(v Value) {
	if v != 0 {
		c.args[0] = uintptr(v)
		purego.SyscallN(c.lib.fns[fnReleaseValue], c.args[:1]...)
	}
}

// Tensor returns a tensor over data that is in use until the tensor is
// released. The caller keeps data alive.
func (c *Call) Tensor(t tensor.Type, shape tensor.Shape, data []byte) (Value, error) {
	c.dims = shape
	c.args = [7]uintptr{
		c.lib.cpu, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)),
		uintptr(unsafe.Pointer(unsafe.SliceData(shape))), uintptr(len(shape)), elementOf(t), c.result(0),
	}
	err := c.invoke(fnCreateTensorWithData, 7)
	return Value(c.out[0]), err
}

// Describe returns a tensor's type and appends its shape to dims. It allocates
// nothing if the returned shape is reused as dims.
func (c *Call) Describe(v Value, dims tensor.Shape) (tensor.Type, tensor.Shape, error) {
	c.args[0], c.args[1] = uintptr(v), c.result(0)
	if err := c.invoke(fnGetTensorTypeAndShape, 2); err != nil {
		return tensor.Invalid, dims, err
	}
	info := c.out[0]
	t, dims, err := c.describe(info, dims)
	c.args[0] = info
	purego.SyscallN(c.lib.fns[fnReleaseTensorTypeAndShapeInfo], c.args[:1]...)
	return t, dims, err
}

func (c *Call) describe(info uintptr, dims tensor.Shape) (tensor.Type, tensor.Shape, error) {
	c.out[0] = 0 // the enumeration is narrower than a word
	c.args[0], c.args[1] = info, c.result(0)
	if err := c.invoke(fnGetTensorElementType, 2); err != nil {
		return tensor.Invalid, dims, err
	}
	t := typeOf(*(*uint32)(unsafe.Pointer(&c.out[0])))
	if err := c.invoke(fnGetDimensionsCount, 2); err != nil {
		return t, dims, err
	}
	start, rank := len(dims), int(c.out[0])
	for range rank {
		dims = append(dims, 0)
	}
	if rank == 0 {
		return t, dims, nil
	}
	c.dims = dims
	c.args[1], c.args[2] = uintptr(unsafe.Pointer(&dims[start])), uintptr(rank)
	return t, dims, c.invoke(fnGetDimensions, 3)
}

// Data returns the address of a tensor's content.
func (c *Call) Data(v Value) (uintptr, error) {
	c.args[0], c.args[1] = uintptr(v), c.result(0)
	err := c.invoke(fnGetTensorMutableData, 2)
	return c.out[0], err
}

// SetString makes s the i-th element of a tensor of strings.
func (c *Call) SetString(v Value, i int, s []byte) error {
	c.args[0], c.args[1], c.args[2], c.args[3] = uintptr(v), uintptr(i), uintptr(len(s)), c.result(0)
	if err := c.invoke(fnGetResizedStringTensorElementBuffer, 4); err != nil {
		return err
	}
	copy(Bytes(c.out[0], len(s)), s)
	return nil
}

// StringsLen returns the number of bytes of all strings in a tensor.
func (c *Call) StringsLen(v Value) (int, error) {
	c.args[0], c.args[1] = uintptr(v), c.result(0)
	err := c.invoke(fnGetStringTensorDataLength, 2)
	return int(c.out[0]), err
}

// Strings copies all strings of a tensor to dst, one after the other, and their
// offsets to offsets. The lengths of both must fit the tensor.
func (c *Call) Strings(v Value, dst []byte, offsets []uint64) error {
	if len(offsets) == 0 {
		return nil
	}
	c.bytes, c.offsets = dst, offsets
	to := c.result(0) // any valid address when there is nothing to write
	if len(dst) > 0 {
		to = uintptr(unsafe.Pointer(&dst[0]))
	}
	c.args[0], c.args[1], c.args[2] = uintptr(v), to, uintptr(len(dst))
	c.args[3], c.args[4] = uintptr(unsafe.Pointer(&offsets[0])), uintptr(len(offsets))
	return c.invoke(fnGetStringTensorContent, 5)
}
