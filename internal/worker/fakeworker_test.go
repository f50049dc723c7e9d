package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shoal/internal/status"
)

// A fake is a process that exists only in the test.
type fake struct {
	done chan struct{}
	once sync.Once

	mu  sync.Mutex // protects err
	err error
}

func (f *fake) Done() <-chan struct{} { return f.done }

func (f *fake) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fake) Kill(why error) {
	f.die(&Exit{Model: "m", Name: "m_0_0", Signal: syscall.SIGKILL, Why: why})
}

func (f *fake) Stop() { f.Kill(errors.New("the server stopped it")) }

// die ends the fake as a signal from outside would.
func (f *fake) die(exit *Exit) {
	f.once.Do(func() {
		f.mu.Lock()
		f.err = exit
		f.mu.Unlock()
		close(f.done)
	})
}

func (f *fake) segfault() {
	f.die(&Exit{Model: "m", Name: "m_0_0", Signal: syscall.SIGSEGV, Stderr: []string{"ouch"}})
}

// A nursery starts fakes that need loadTime to load, as many as it likes.
type nursery struct {
	loadTime time.Duration

	mu     sync.Mutex // protects the fields below
	fail   error      // what starts end with, if not nil
	starts []time.Duration
	begin  time.Time
	states []Availability
	why    error // the last reason for being broken
}

func (n *nursery) start(ctx context.Context) (*fake, error) {
	n.mu.Lock()
	n.starts = append(n.starts, time.Since(n.begin))
	fail := n.fail
	n.mu.Unlock()
	select {
	case <-time.After(n.loadTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if fail != nil {
		return nil, fail
	}
	return &fake{done: make(chan struct{})}, nil
}

func (n *nursery) setFail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

func (n *nursery) changed(a Availability, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.states = append(n.states, a)
	if why != nil {
		n.why = why
	}
}

func (n *nursery) config() Config[*fake] {
	n.begin = time.Now()
	return Config[*fake]{Model: "m", Name: "m_0_0", Log: slog.New(slog.DiscardHandler), Start: n.start, Limits: limits, Changed: n.changed}
}

// supervise starts a supervisor over the nursery and returns it with its first worker.
func supervise(t *testing.T, n *nursery) *Supervisor[*fake] {
	t.Helper()
	s, err := Supervise(t.Context(), n.config())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// acquire returns the worker and how long that took.
func acquire(t *testing.T, s *Supervisor[*fake]) (*fake, time.Duration) {
	t.Helper()
	begin := time.Now()
	w, err := s.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	return w, time.Since(begin)
}

func wantPublic(t *testing.T, err error, code status.Code, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one with code %v", code)
	}
	if got := status.CodeOf(err); got != code {
		t.Errorf("got code %v, want %v (%v)", got, code, err)
	}
	for _, p := range parts {
		if got := status.Public(err); !strings.Contains(got, p) {
			t.Errorf("got public text %q, want %q in it", got, p)
		}
	}
}
