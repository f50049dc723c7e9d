package worker

import (
	"errors"
	"fmt"
	"time"

	"shoal/internal/status"
)

// Acquire returns the worker for one batch, which must be given back with
// Release or Lost. It waits while somebody else has the worker or it is being
// started again, and fails when it keeps dying or could not be started.
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

// Await returns the worker without taking it, so that a batch can be laid into its
// memory while another still runs. It waits and fails as Acquire does, but not
// because somebody else has the worker. Acquire may then give another one, if
// this has died meanwhile.
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

// unavailableLocked says why there is no worker to run a batch.
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

// troubleLocked says in what state a worker is that cannot be waited for.
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
	case <-w.Done(): // it ended after its answer: nobody is to be given it any more
		s.diedLocked(w)
	default:
	}
}

// Lost gives the worker back when it has not answered the batch: it has died, or
// it broke the rules of its link as fault says, and then it is killed. Lost
// returns when the process is gone and touches the batch no more, with the error
// for the batch's clients.
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

// settle is how long a worker whose link broke is given to be gone: when it dies,
// its pipes close a little before its process has ended.
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
