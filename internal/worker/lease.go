package worker

import (
	"errors"
	"fmt"
	"time"

	"shoal/internal/status"
)

// Acquire returns the worker for one batch; give it back with Release or Lost.
// It waits while somebody else has the worker or it is being restarted, and
// fails when it keeps dying or could not be started.
func (s *Supervisor[W]) Acquire() (W, error) {
	s.mu.Lock()
	defer s.unlock()
	for s.machine.State == Running || s.availabilityLocked() == Down {
		s.change.Wait()
	}
	if s.machine.State != Ready {
		var none W
		return none, s.unavailableLocked()
	}
	s.eventLocked(Begin)
	return s.current, nil
}

// Reacquire acquires a worker that has the next batch already, as soon as
// nobody else has it. If that worker has died it does nothing: its batch is lost
// or still to be run, and Release and Lost may be called as usual.
func (s *Supervisor[W]) Reacquire(w W) {
	s.mu.Lock()
	defer s.unlock()
	for s.current == w && s.machine.State == Running {
		s.change.Wait()
	}
	if s.current == w && s.machine.State == Ready {
		s.eventLocked(Begin)
	}
}

// Await returns the worker without acquiring it, so that a batch can be copied
// into its memory while another still runs. It waits and fails as Acquire does,
// but does not wait for another holder. Acquire may then return another worker,
// if this one has died.
func (s *Supervisor[W]) Await() (W, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.availabilityLocked() == Down {
		s.change.Wait()
	}
	if s.availabilityLocked() == Broken {
		var none W
		return none, s.unavailableLocked()
	}
	return s.current, nil
}

// unavailableLocked returns why there is no worker to run a batch.
func (s *Supervisor[W]) unavailableLocked() error {
	if s.machine.State == Closed {
		return status.Errorf(status.Unavailable, "model %q: worker %s is being stopped", s.cfg.Model, s.cfg.Name)
	}
	msg := s.troubleLocked()
	if wait := time.Until(s.machine.Resume); s.machine.State == Backoff && wait > 0 {
		msg += fmt.Sprintf("; next start in %v", wait.Round(time.Millisecond))
	}
	return status.Errorf(status.Unavailable, "%s", msg)
}

// troubleLocked describes the state of a worker that cannot be waited for.
func (s *Supervisor[W]) troubleLocked() string {
	msg := fmt.Sprintf("model %q: worker %s is not available: it died or did not start %d times in a row", s.cfg.Model, s.cfg.Name, s.machine.Deaths)
	if s.last != nil {
		msg += "; last: " + brief(s.last)
	}
	return msg
}

// Release gives the worker back after a batch that it has answered.
func (s *Supervisor[W]) Release(w W) {
	s.mu.Lock()
	defer s.unlock()
	if s.current != w {
		return
	}
	s.eventLocked(End)
	select {
	case <-w.Done(): // it ended after its answer and cannot be used again
		s.diedLocked(w)
	default:
	}
}

// Lost gives the worker back when it has not answered the batch: it has died,
// or it violated the protocol of its link as fault says; it is then killed.
// Lost returns when the process is gone and no longer uses the batch, with the
// error for the batch's clients.
func (s *Supervisor[W]) Lost(w W, fault error) error {
	if !goneWithin(w.Done(), settle) {
		s.mu.Lock()
		if s.current == w {
			s.last = fault
			s.eventLocked(Broke)
		}
		s.unlock()
		<-w.Done()
	}
	s.mu.Lock()
	s.diedLocked(w)
	s.unlock()
	err := w.Err()
	var exit *Exit
	if errors.As(err, &exit) {
		return exit.Lost()
	}
	return err
}

// settle is how long to wait for the end of a worker whose link broke: when a
// process dies, its pipes close a little before it has ended.
const settle = 250 * time.Millisecond

func goneWithin(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
