package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"shoal/internal/engine"
	"shoal/internal/inflight"
)

// A life is the run of a server: the signals that end it, the protocols that
// were started and the order in which they stop.
type life struct {
	log     *slog.Logger
	timeout time.Duration
	delay   time.Duration // how long the server goes on, not ready, before it stops
	asked   chan struct{} // closed at the first signal
	flush   func()        // writes the last lines of the log, for at most a moment
	broken  chan error    // a protocol that ended by itself
	signals chan os.Signal
	unwatch func() // stops watching another process; nil when there is none
	wg      sync.WaitGroup

	listening sync.WaitGroup // goroutines that send to signals

	begin    sync.Once // the stop has begun
	deadline time.Time // when requests in flight are given up; set by begin

	services  []service
	addresses map[string]string // by protocol

	memory *inflight.Pool // what the services share
}

// A service is a protocol that is being served.
type service struct {
	protocol string
	close    func(context.Context) error
	inFlight func() int // requests in flight; nil when they do not count
}

// startLife starts to listen for signals. It calls flush before it ends the
// process at once.
func startLife(log *slog.Logger, delay, timeout time.Duration, flush func()) *life {
	l := &life{
		log: log, delay: delay, timeout: max(timeout, leastTimeout), flush: flush,
		asked: make(chan struct{}), broken: make(chan error, 8), signals: make(chan os.Signal, 4),
		addresses: make(map[string]string),
	}
	signal.Notify(l.signals, syscall.SIGTERM, os.Interrupt)
	l.wg.Go(l.watch)
	return l
}

// watch turns the first signal into a request to stop. The second one ends the
// process.
func (l *life) watch() {
	asked := false
	for s := range l.signals {
		if asked {
			l.log.Warn("stopping at once, on a second signal", "signal", s.String())
			l.exit()
		}
		asked = true
		l.beginStop()
		if l.delay > 0 {
			l.log.Info("not ready any more: stopping after the delay", "signal", s.String(), "delay", l.delay)
		} else {
			l.log.Info("stopping: finishing what is in flight", "signal", s.String(), "timeout", l.timeout)
		}
		close(l.asked)
	}
}

// end stops listening to signals.
func (l *life) end() {
	if l.unwatch != nil {
		l.unwatch()
	}
	signal.Stop(l.signals)
	l.listening.Wait()
	close(l.signals)
	l.wg.Wait()
}

func (l *life) stopping() bool {
	select {
	case <-l.asked:
		return true
	default:
		return false
	}
}

// exit ends the process now. Its workers end with it.
func (l *life) exit() {
	l.flush()
	os.Exit(exitFailed)
}

// wait returns when a signal came and everything has stopped, or when a
// protocol failed.
func (l *life) wait(e *engine.Engine) error {
	select {
	case <-l.asked:
	case err := <-l.broken:
		return errors.Join(err, l.stop(e))
	}
	if l.delay > 0 {
		e.Leave()
		delay := time.NewTimer(l.delay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case err := <-l.broken:
			return errors.Join(err, l.stop(e))
		}
		l.log.Info("stopping: finishing what is in flight", "timeout", l.timeout)
	}
	return l.stop(e)
}
