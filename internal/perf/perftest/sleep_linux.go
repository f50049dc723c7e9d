package perftest

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// wakeEarly is how long before its time a sleep ends: the system's sleeps are late
// by about as much, and what a model costs has to be known.
const wakeEarly = 100 * time.Microsecond

// sleepUntil sleeps in the system, for the runtime's timers may be a millisecond
// late and the models here take two, and watches the clock at the end.
func sleepUntil(t time.Time) {
	for left := time.Until(t); left > 0; left = time.Until(t) {
		if left <= wakeEarly {
			continue
		}
		spec := unix.NsecToTimespec(int64(left - wakeEarly))
		if err := unix.Nanosleep(&spec, nil); err != nil && !errors.Is(err, unix.EINTR) {
			panic("BUG: perftest: nanosleep: " + err.Error())
		}
	}
}
