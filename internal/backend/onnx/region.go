package onnx

import (
	"unsafe"

	"shoal/internal/backend"
)

// A region is the memory that an instance gathers its inputs in, or that a
// slot's outputs are written to. Tensors of ONNX Runtime refer to it by address,
// so whoever lets it move must drop those first.
type region struct {
	memory backend.Memory
	mem    []byte

	// How much of it was used since the last look, and how often.
	peak, uses int
}

const (
	// alignment is what ONNX Runtime's own memory has: a cache line, and as
	// much as the widest vector instructions want.
	alignment = 64
	pageSize  = 4096

	// A region above this size is looked at every so many uses, and given back
	// when no use since the last look needed a quarter of it: one huge
	// request should not hold its memory for ever.
	keptSize  = 1 << 20
	lookAfter = 256
)

// align rounds n up to the next place where a tensor may begin.
func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// address returns where the byte at offset lies.
func (a *region) address(offset int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(a.mem))) + uintptr(offset)
}

// use notes a use of n bytes and reports whether the region will do as it is. If
// not, because it is too small or has been far too large for a while, the
// caller drops what refers to it and resizes it.
func (a *region) use(n int) bool {
	a.peak = max(a.peak, n)
	a.uses++
	if a.uses >= lookAfter {
		wasteful := len(a.mem) > keptSize && a.peak < len(a.mem)/4
		a.peak, a.uses = n, 0
		if wasteful {
			return false
		}
	}
	return n <= len(a.mem) && a.mem != nil
}

// resize replaces the region's memory by at least n bytes of undefined content.
// It grows by doubling, so that batches of rising size move it rarely.
func (a *region) resize(n int) error {
	size := n
	if n > len(a.mem) {
		size = max(n, min(2*len(a.mem), len(a.mem)+64<<20))
	}
	size = max(pageSize, (size+pageSize-1)&^(pageSize-1))
	mem, err := a.memory.Alloc(size)
	if err != nil {
		return err
	}
	a.free()
	a.mem = mem
	return nil
}

// free gives the memory back.
func (a *region) free() {
	if a.mem != nil {
		a.memory.Free(a.mem)
		a.mem = nil
	}
}
