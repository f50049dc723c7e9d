package worker

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// RSS returns the child's resident memory in bytes, zero when it is unknown or
// the child is gone.
func (p *Process) RSS() int64 {
	p.mu.Lock()
	defer p.mu.Unlock() // the pid is the child's until it is reaped
	if p.reaped {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
