package sched

import (
	"fmt"
	"sync"
	"time"

	"shoal/internal/timerfd"
)

func openTimer() (*timerfd.Timer, error) {
	t, err := timerfd.Open()
	if err != nil {
		return nil, fmt.Errorf("make a timer for the batcher: %w", err)
	}
	return t, nil
}

// An fdTimer calls its function when its timer fires.
type fdTimer struct {
	timer *timerfd.Timer
	wg    sync.WaitGroup
}

func newTimer(f func()) (timer, error) {
	fd, err := openTimer()
	if err != nil {
		return nil, err
	}
	t := &fdTimer{timer: fd}
	t.wg.Go(func() {
		for t.timer.Wait() == nil { // until it is closed
			f()
		}
	})
	return t, nil
}

func (t *fdTimer) set(d time.Duration) { t.timer.Set(d) }

func (t *fdTimer) close() {
	t.timer.Close()
	t.wg.Wait()
}
