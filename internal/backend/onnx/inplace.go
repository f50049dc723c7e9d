package onnx

import (
	"unsafe"

	"shoal/internal/infer"
)

// minInPlace is the size of an input from which making and releasing a tensor
// costs less than copying the input.
const minInPlace = 32 << 10

// useInPlace makes the i-th input of the run a tensor over the request's own
// memory, and reports whether that is possible: the memory must be in one
// piece, aligned as ONNX Runtime aligns its own, and out of other processes'
// reach. ONNX Runtime does not write to inputs.
func (in *inputSlot) useInPlace(i int, at *planned, r *infer.Request) bool {
	input := at.in(r)
	if at.size < minInPlace || input == nil || !input.Data.Private || len(input.Data.Rest) > 0 || len(input.Data.First) != at.size {
		return false
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(input.Data.First)))%alignment != 0 {
		return false
	}
	v, err := in.call.Tensor(at.port.Type, at.shape, input.Data.First)
	if err != nil {
		return false
	}
	in.values[i] = v
	in.inPlace = append(in.inPlace, v)
	return true
}

// releaseInPlace releases the tensors over the request's memory.
func (in *inputSlot) releaseInPlace() {
	for _, v := range in.inPlace {
		in.call.Release(v)
	}
	in.inPlace = in.inPlace[:0]
}
