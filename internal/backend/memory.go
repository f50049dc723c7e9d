package backend

import (
	"fmt"
	"syscall"
)

// A Memory allocates memory for the tensors of batches: host memory outside
// Go's heap that a device can reach. Instances get one by where they run, so
// that pinned or shared memory is another Memory. Its methods may be called
// from many goroutines.
type Memory interface {
	// Alloc returns n bytes, at least one, of undefined content, aligned to a
	// page.
	Alloc(n int) ([]byte, error)
	// Free frees what Alloc returned.
	Free(b []byte)
}

// Pages is the Memory of CPUs: pages of the process. Untouched pages cost
// nothing.
type Pages struct{}

// Alloc implements Memory.
func (Pages) Alloc(n int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes for tensors: %w", n, err)
	}
	return b, nil
}

// Free implements Memory.
func (Pages) Free(b []byte) { _ = syscall.Munmap(b) } // it cannot fail for memory that Alloc mapped
