package trace

import "golang.org/x/sys/unix"

// monotonic returns what the machine's monotonic clock says, in nanoseconds; zero when
// it cannot be read.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}
