//go:build !linux

package worker

// RSS would return how many bytes of memory the child has resident; only Linux
// tells.
func (p *Process) RSS() int64 { return 0 }
