package cli

import (
	"fmt"
	"syscall"
)

// stopWith makes the server stop when another process ends, as on a signal.
// Zero is no process. If the process is already gone the server stops at once:
// it may have died while this one started.
func (l *life) stopWith(pid int) error {
	if pid == 0 {
		return nil
	}
	wait, stop, err := watchProcess(pid)
	if err != nil {
		return fmt.Errorf("--stop-with-process %d: %w", pid, err)
	}
	l.unwatch = stop
	l.listening.Go(func() {
		if wait() && !l.stopping() { // a second signal would end the drain
			l.log.Info("the process that this one was to stop with has ended", "pid", pid)
			l.signals <- syscall.SIGTERM
		}
	})
	return nil
}
