package perftest

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// sleepUntil sleeps in the system: the runtime's timers may be a millisecond
// late, and the models here take two.
func sleepUntil(t time.Time) {
	for {
		left := time.Until(t)
		if left <= 0 {
			return
		}
		spec := unix.NsecToTimespec(int64(left))
		if err := unix.Nanosleep(&spec, nil); err != nil && !errors.Is(err, unix.EINTR) {
			panic("BUG: perftest: nanosleep: " + err.Error())
		}
	}
}
