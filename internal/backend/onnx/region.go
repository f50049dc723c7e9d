package onnx

import (
	"unsafe"

	"shoal/internal/backend"
)

// A region is the memory for an instance's inputs, or for a slot's outputs.
// ONNX Runtime's tensors refer to it by address, so they must be dropped before
// it moves.
type region struct {
	memory backend.Memory
	keep   bool // never give memory back: pinned memory is expensive to get, and stops the device when it is freed
	mem    []byte

	// The most bytes used, and the number of uses, since the last check.
	peak, uses int
}

const (
	// alignment is that of ONNX Runtime's own memory: a cache line, enough for
	// the widest vector instructions.
	alignment = 64
	pageSize  = 4096

	// A region above this size is checked after a number of uses, and freed
	// when no use since the last check needed a quarter of it: one huge request
	// should not keep its memory for ever.
	keptSize  = 1 << 20
	lookAfter = 256
)

// align rounds n up to the alignment.
func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// address returns the address of the byte at offset.
func (a *region) address(offset int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(a.mem))) + uintptr(offset)
}

// use records a use of n bytes and reports whether the region has a suitable
// size. If not, because it is too small or has been far too large for a while,
// the caller drops what refers to it and resizes it.
func (a *region) use(n int) bool {
	a.peak = max(a.peak, n)
	a.uses++
	if a.uses >= lookAfter {
		wasteful := !a.keep && len(a.mem) > keptSize && a.peak < len(a.mem)/4
		a.peak, a.uses = n, 0
		if wasteful {
			return false
		}
	}
	return n <= len(a.mem) && a.mem != nil
}

// resize replaces the region's memory by at least n bytes of undefined content.
// It grows by doubling, so that batches of rising size rarely move it.
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
