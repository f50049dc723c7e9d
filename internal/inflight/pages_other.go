//go:build !linux

package inflight

// newPages returns n bytes of memory.
func newPages(n int) []byte { return make([]byte, n) }

// freePages leaves b to the garbage collector: it cannot be used again.
func freePages([]byte) bool { return false }
