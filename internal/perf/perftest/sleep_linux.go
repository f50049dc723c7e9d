package perftest

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// wakeEarly is how long before its time a sleep ends: the system's sleeps are
// about that late, and a model's cost must be exact.
const wakeEarly = 100 * time.Microsecond

// sleepUntil sleeps in the system and then polls the clock: the Go runtime's
// timers may be a millisecond late, and the models here take two.
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
