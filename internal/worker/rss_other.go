//go:build !linux

package worker

// RSS is known on Linux only.
func (p *Process) RSS() int64 { return 0 }
