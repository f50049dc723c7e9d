//go:build !linux

package cli

import (
	"sync"
	"syscall"
	"time"
)

// watchProcess returns a function that waits until the process ends and returns
// true, or false when stop was called before that.
func watchProcess(pid int) (wait func() bool, stop func(), err error) {
	stopped := make(chan struct{})
	wait = func() bool {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for syscall.Kill(pid, 0) != syscall.ESRCH {
			select {
			case <-stopped:
				return false
			case <-tick.C:
			}
		}
		return true
	}
	return wait, sync.OnceFunc(func() { close(stopped) }), nil
}
