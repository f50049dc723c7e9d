package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"shoal/internal/engine"
)

const (
	// leastTimeout is what an exit timeout of 0 means: a server without
	// requests must be able to end cleanly.
	leastTimeout = 250 * time.Millisecond
	// answerTime is how long, after the exit timeout, the protocols may take to
	// tell clients that their requests were given up.
	answerTime = 250 * time.Millisecond
	// lastResort is when, after the exit timeout, the process ends even if
	// something hangs.
	lastResort = 750 * time.Millisecond
)

// beginStop starts the clock of the exit timeout, which runs after the delay, once. However the stop goes,
// the process ends shortly after it.
func (l *life) beginStop() {
	l.begin.Do(func() {
		l.deadline = time.Now().Add(l.delay + l.timeout)
		time.AfterFunc(l.delay+l.timeout+lastResort, func() {
			l.log.Error("Exit timeout expired and the server did not end by itself. Exiting immediately.", "timeout", l.timeout)
			l.exit()
		})
	})
}

// stop ends the server from the top down: not ready, no more connections,
// requests that have arrived answered, models freed. At the deadline it gives up:
// it kills workers, tells their clients, and logs what was lost.
func (l *life) stop(e *engine.Engine) error {
	l.beginStop()
	begin := time.Now()
	deadline, cancel := context.WithDeadline(context.Background(), l.deadline)
	defer cancel()
	closing, cancel := context.WithDeadline(context.Background(), l.deadline.Add(answerTime))
	defer cancel()
	e.Drain()
	cut := make(chan []any, 1)
	inTime := context.AfterFunc(deadline, func() {
		cut <- l.unfinished(e)
		e.Abort()
	})
	l.closeServices(closing)
	err := e.Close(closing)
	if inTime() {
		l.log.Info("stopped", "after", time.Since(begin).Round(time.Millisecond))
		return nil
	}
	lost := append([]any{"timeout", l.timeout}, <-cut...)
	if err != nil {
		lost = append(lost, "err", err)
	}
	l.log.Error("Exit timeout expired. Exiting immediately.", lost...)
	return errExitTimeout
}

// closeServices closes all protocols concurrently.
func (l *life) closeServices(ctx context.Context) {
	var wg sync.WaitGroup
	for _, f := range l.services {
		wg.Go(func() {
			if err := f.close(ctx); err != nil && ctx.Err() == nil { // otherwise stop logs what was cut off
				l.log.Warn("closing a protocol", "protocol", f.protocol, "err", err)
			}
		})
	}
	wg.Wait()
}

// unfinished returns what is cut off now, for the log: requests by protocol and
// by model, and models that are still loading.
func (l *life) unfinished(e *engine.Engine) []any {
	var list []any
	for _, f := range l.services {
		if f.inFlight != nil {
			list = append(list, f.protocol+"_requests", f.inFlight())
		}
	}
	u := e.Unfinished()
	if len(u.Requests) > 0 {
		var models []string
		for _, m := range u.Requests {
			models = append(models, fmt.Sprintf("%s version %d: %d", m.Model, m.Version, m.Requests))
		}
		list = append(list, "requests_by_model", strings.Join(models, ", "))
	}
	if len(u.Loading) > 0 {
		list = append(list, "still_loading", strings.Join(u.Loading, ", "))
	}
	return list
}

var errExitTimeout = errors.New("the server had not finished when --exit-timeout-secs was over; the log says what was cut off")
