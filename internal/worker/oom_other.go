//go:build !linux

package worker

// An oomCounter would count kills for lack of memory; only Linux has such a
// counter.
type oomCounter struct{}

func newOOMCounter() oomCounter { return oomCounter{} }

func (oomCounter) rose() bool { return false }
