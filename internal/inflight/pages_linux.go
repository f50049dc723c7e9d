package inflight

import "golang.org/x/sys/unix"

// newPages returns n bytes of memory outside of Go's heap.
func newPages(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil { // too many mappings, or a limit of the address space
		return make([]byte, n)
	}
	return b
}

// freePages returns the pages of b to the system and reports that b can be used
// again: it then has new pages. The addresses stay ours, so that a late reader
// cannot crash the server. Memory that is locked keeps its pages.
func freePages(b []byte) bool {
	_ = unix.Madvise(b, unix.MADV_DONTNEED) // fails for locked memory, which can be used as it is
	return true
}
