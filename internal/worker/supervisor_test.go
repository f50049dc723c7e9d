package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/status"
)

func TestSuperviseReturnsTheFirstStartsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{loadTime: 300 * ms, fail: errors.New("Traceback: no module named torch")}
		s, err := Supervise(t.Context(), n.config())
		if s != nil || err == nil || !strings.Contains(err.Error(), "no module named torch") {
			t.Errorf("got %v, want the start's error", err)
		}
		if got := time.Since(n.begin); got != 300*ms {
			t.Errorf("took %v, want exactly 300ms", got)
		}
	})
}

func TestSuperviseGivesUpAStartThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{loadTime: time.Hour}
		cfg := n.config()
		cfg.Limits.Start = 2 * time.Second
		_, err := Supervise(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "longer than 2s to start") {
			t.Errorf("got %v, want an error with the limit", err)
		}
		if got := time.Since(n.begin); got != 2*time.Second {
			t.Errorf("took %v, want exactly 2s", got)
		}
	})
}

func TestWorkerThatDiesIsBackAfterItsLoadTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{loadTime: 300 * ms}
		s := supervise(t, n)
		defer s.Close()
		w, _ := acquire(t, s)
		time.AfterFunc(40*ms, w.segfault)
		<-w.Done()
		err := s.Lost(w, nil)
		wantPublic(t, err, status.Internal, `model "m"`, "worker m_0_0", "killed by signal 11 (SIGSEGV)", "ouch")
		if got := time.Since(n.begin); got != 340*ms {
			t.Errorf("told after %v, want exactly 340ms", got)
		}
		next, wait := acquire(t, s)
		if next == w || wait != 300*ms {
			t.Errorf("got the next worker after %v, want a new one after exactly 300ms", wait)
		}
		s.Release(next)
		if got := s.Status(); got != (Status{State: Ready, Restarts: 1}) {
			t.Errorf("got %+v, want ready after one restart", got)
		}
		if want := []Availability{Down, Up}; fmt.Sprint(n.states) != fmt.Sprint(want) {
			t.Errorf("got changes %v, want %v", n.states, want)
		}
	})
}

func TestWorkerThatDiesWhileIdleIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{loadTime: 300 * ms}
		s := supervise(t, n)
		defer s.Close()
		s.current.segfault()
		synctest.Wait()
		if _, wait := acquire(t, s); wait != 300*ms {
			t.Errorf("waited %v, want exactly 300ms", wait)
		}
	})
}

func TestWorkerThatDiesAfterItsAnswerIsNotGivenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{}
		s := supervise(t, n)
		defer s.Close()
		for range 100 { // it has served, so no pause grows
			w, _ := acquire(t, s)
			w.segfault()
			s.Release(w)
			if next, wait := acquire(t, s); next == w || wait != 0 {
				t.Fatalf("got the dead worker again, or after %v, want a new one at once", wait)
			} else {
				s.Release(next)
			}
		}
	})
}

func TestBatchThatTakesTooLongIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{}
		s := supervise(t, n)
		defer s.Close()
		for range 3 { // the timer of an earlier batch must not hit a later one
			w, _ := acquire(t, s)
			time.Sleep(400 * ms)
			s.Release(w)
		}
		begin := time.Now()
		w, _ := acquire(t, s)
		<-w.Done()
		if got := time.Since(begin); got != 500*ms {
			t.Errorf("killed after %v, want exactly 500ms", got)
		}
		wantPublic(t, s.Lost(w, nil), status.Internal, `model "m"`, "worker m_0_0", "longer than the execution timeout of 500ms")
	})
}

func TestWorkerThatBreaksItsLinkIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{}
		s := supervise(t, n)
		defer s.Close()
		w, _ := acquire(t, s)
		err := s.Lost(w, errors.New("it closed its control pipe"))
		wantPublic(t, err, status.Internal, `model "m"`, "worker m_0_0", "it closed its control pipe")
		if next, _ := acquire(t, s); next == w {
			t.Error("got the same worker again, want a new one")
		}
	})
}

func TestRestartsPauseLongerEachTimeAndTellRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{}
		s := supervise(t, n)
		defer s.Close()
		for range 3 { // restarts after 0, 100 and 200 ms: requests wait for those
			w, _ := acquire(t, s)
			w.segfault()
			_ = s.Lost(w, nil)
		}
		w, wait := acquire(t, s)
		if wait != 200*ms {
			t.Errorf("waited %v, want exactly 200ms", wait)
		}
		w.segfault()
		_ = s.Lost(w, nil)
		begin := time.Now()
		_, err := s.Acquire()
		wantPublic(t, err, status.Unavailable, "4 times in a row", "killed by signal 11 (SIGSEGV)", "ouch", "next start in 400ms")
		if got := time.Since(begin); got != 0 {
			t.Errorf("told after %v, want at once", got)
		}
		time.Sleep(400 * ms)
		synctest.Wait()
		w, wait = acquire(t, s)
		if wait != 0 {
			t.Errorf("waited %v, want a worker that is back", wait)
		}
		s.Release(w)
		if got, want := fmt.Sprint(n.starts), "[0s 0s 100ms 300ms 700ms]"; got != want {
			t.Errorf("got starts at %v, want %v", got, want)
		}
	})
}

func TestWorkerThatCannotBeStartedAgainIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{}
		s := supervise(t, n)
		defer s.Close()
		n.setFail(&Exit{Model: "m", Name: "m_0_0", Code: 1, Stderr: []string{"ImportError: gone"}})
		s.current.segfault()
		synctest.Wait()
		begin := time.Now()
		_, err := s.Acquire() // waits for the second try
		wantPublic(t, err, status.Unavailable, "3 times in a row", "ended with exit code 1", "ImportError: gone", "next start in 200ms")
		if got := time.Since(begin); got != 100*ms {
			t.Errorf("told after %v, want exactly 100ms", got)
		}
		wantPublic(t, n.why, status.Unavailable, "worker m_0_0 is not available", "3 times in a row", "ImportError: gone")
		n.setFail(nil)
		time.Sleep(200 * ms)
		synctest.Wait()
		w, _ := acquire(t, s)
		s.Release(w)
		if want := []Availability{Down, Broken, Up}; fmt.Sprint(n.states) != fmt.Sprint(want) {
			t.Errorf("got changes %v, want %v", n.states, want)
		}
	})
}

func TestAStartsOwnWordsAreToldInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{}
		s := supervise(t, n)
		defer s.Close()
		n.setFail(fmt.Errorf("start: %w", status.Errorf(status.Internal, "ImportError: gone\nTraceback: ...")))
		s.current.segfault()
		synctest.Wait()
		_, err := s.Acquire()
		wantPublic(t, err, status.Unavailable, "; last: ImportError: gone; next start in 200ms")
	})
}

func TestCloseEndsWorkersInEveryState(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, n *nursery, s *Supervisor[*fake])
	}{
		{"ready", func(*testing.T, *nursery, *Supervisor[*fake]) {}},
		{"starting", func(_ *testing.T, _ *nursery, s *Supervisor[*fake]) { s.current.segfault() }},
		{"pausing", func(_ *testing.T, n *nursery, s *Supervisor[*fake]) {
			n.setFail(errors.New("no"))
			s.current.segfault()
			time.Sleep(n.loadTime)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &nursery{loadTime: 300 * ms}
				s := supervise(t, n)
				c.prepare(t, n, s)
				synctest.Wait()
				begin := time.Now()
				s.Close()
				if got := time.Since(begin); got != 0 {
					t.Errorf("took %v, want at once", got)
				}
				starts := len(n.starts)
				time.Sleep(time.Hour)
				if got := len(n.starts); got != starts {
					t.Errorf("got %d starts after close, want none", got-starts)
				}
				_, err := s.Acquire()
				wantPublic(t, err, status.Unavailable, "being stopped")
			})
		})
	}
}

func TestCloseWakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{loadTime: time.Hour}
		s := supervise(t, n)
		s.current.segfault()
		synctest.Wait()
		got := make(chan error)
		go func() {
			_, err := s.Acquire()
			got <- err
		}()
		synctest.Wait()
		s.Close()
		wantPublic(t, <-got, status.Unavailable, "being stopped")
	})
}

func TestAwaitGivesAWorkerThatIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nursery{loadTime: 300 * ms}
		s := supervise(t, n)
		defer s.Close()
		w, _ := acquire(t, s)
		if got, err := s.Await(); got != w || err != nil {
			t.Errorf("got %p and %v, want the worker %p that runs", got, err, w)
		}
		next := make(chan time.Duration)
		begin := time.Now()
		go func() { // the one that waits for its turn gets the worker when it is free
			w, _ := s.Acquire()
			next <- time.Since(begin)
			s.Release(w)
		}()
		time.Sleep(40 * ms)
		s.Release(w)
		if got := <-next; got != 40*ms {
			t.Errorf("got the worker after %v, want exactly 40ms", got)
		}
		w.segfault()
		synctest.Wait()
		begin = time.Now()
		if got, err := s.Await(); got == w || err != nil || time.Since(begin) != 300*ms {
			t.Errorf("got %v after %v, want the next worker after exactly 300ms", err, time.Since(begin))
		}
	})
}

func TestBatchCostsNoAllocation(t *testing.T) {
	n := &nursery{}
	s := supervise(t, n)
	defer s.Close()
	if got := testing.AllocsPerRun(1000, func() {
		w, _ := s.Acquire()
		s.Release(w)
	}); got != 0 {
		t.Errorf("got %v allocations for each batch, want 0", got)
	}
}

func TestAbortFailsTheBatchThatRunsAndThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t, &nursery{})
		w, _ := acquire(t, s)
		waiting := make(chan error, 1)
		go func() {
			_, err := s.Acquire()
			waiting <- err
		}()
		synctest.Wait()
		s.Abort(errors.New("no time is left"))
		wantPublic(t, <-waiting, status.Unavailable, "worker m_0_0 is being stopped")
		wantPublic(t, s.Lost(w, nil), status.Internal, "stopped by the server: no time is left")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := s.Status(); got != (Status{State: Closed}) {
			t.Errorf("got %+v, want it closed and not started again", got)
		}
	})
}

// A stalledLog blocks at each line until it is let go.
type stalledLog struct {
	slog.Handler
	entered, release chan struct{}
}

func (l *stalledLog) Handle(context.Context, slog.Record) error {
	l.entered <- struct{}{}
	<-l.release
	return nil
}

func (l *stalledLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *stalledLog) WithAttrs([]slog.Attr) slog.Handler       { return l }

func TestALogThatStallsDoesNotHoldTheSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &stalledLog{entered: make(chan struct{}), release: make(chan struct{})}
		n := &nursery{}
		cfg := n.config()
		cfg.Log = slog.New(log)
		s, err := Supervise(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		w, _ := acquire(t, s)
		s.Release(w)
		w.segfault()
		<-log.entered // the death is being logged, and takes its time
		if got := s.Status(); got.Restarts != 1 {
			t.Errorf("got %+v, want it started again", got)
		}
		go func() {
			for range log.entered { // what is logged after that
			}
		}()
		close(log.release)
		next, _ := acquire(t, s)
		s.Release(next)
		_ = s.Close()
		close(log.entered)
	})
}

func TestReacquireGivesOnlyTheWorkerThatIsMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t, &nursery{})
		defer s.Close()
		w, _ := acquire(t, s)
		begin, got := time.Now(), make(chan time.Duration)
		go func() {
			s.Reacquire(w)
			got <- time.Since(begin)
		}()
		time.Sleep(40 * ms)
		s.Release(w)
		if took := <-got; took != 40*ms || s.Status().State != Running {
			t.Errorf("got it after %v in state %v, want after exactly 40ms, running", took, s.Status().State)
		}
		w.segfault()
		synctest.Wait()
		s.Reacquire(w) // it is gone: nothing to wait for
		s.Release(w)
		if next, wait := acquire(t, s); next == w || wait != 0 {
			t.Errorf("got the dead worker, or after %v, want the next at once", wait)
		} else {
			s.Release(next)
		}
	})
}
