package onnx

import (
	"syscall"
	"time"
)

// sleep blocks the thread: Go's timers are a millisecond late when the process
// is idle.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal ends it early: then its caller asks earlier
}
