package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"shoal/internal/status"
)

// A Worker is what a Supervisor supervises: a *Process, or something that has
// one and the link to it.
type Worker interface {
	comparable
	// Done is closed when the process is gone.
	Done() <-chan struct{}
	// Err returns how it ended, once Done is closed.
	Err() error
	// Kill ends it at once, for a reason, and does not wait.
	Kill(why error)
	// Stop ends it gently and returns when it is gone.
	Stop()
}

// A Config is how a worker is started and supervised.
type Config[W Worker] struct {
	Model string // for the log and for errors
	Name  string // the instance's
	Log   *slog.Logger

	// Start starts a worker and returns when it has loaded its model. Its
	// context ends when the start takes too long and when the supervisor is
	// closed. After an error nothing of the worker is left.
	Start func(context.Context) (W, error)

	// Limits are the times; see DefaultLimits.
	Limits Limits

	// Changed, when not nil, is called for every change between being able to
	// run, having to be waited for, and being broken, in order. It must not
	// block or call the supervisor. The first call comes with the first change
	// after the worker was ready. The error says why it is broken, for clients,
	// and is nil otherwise.
	Changed func(Availability, error)
}

// An Availability is whether a worker can be given a batch.
type Availability uint8

// The availabilities.
const (
	Up     Availability = iota // it can run a batch, or is running one
	Down                       // it will be back soon; Acquire waits for it
	Broken                     // it may not come back; Acquire fails at once
)

// A Supervisor keeps one worker alive and gives it to one goroutine at a time.
type Supervisor[W Worker] struct {
	cfg    Config[W]
	log    *slog.Logger
	ctx    context.Context // ends when the supervisor is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup // starts and watchers of workers

	mu      sync.Mutex // protects the fields below
	machine Machine
	current W         // the worker in Ready, Running and Killing, else the zero value
	last    error     // why there is no worker
	armed   time.Time // when the timer will fire; zero when it will not
	timer   *time.Timer
	told    Availability
	change  sync.Cond // the machine's state changed
	notes   []note    // for the log, once the mutex is free
}

// A note is a line for the log. It is written without the mutex, since a log
// may block.
type note struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// Supervise starts a worker and returns when it is ready, or why its start
// failed. The end of ctx ends the first start. The caller must Close the
// result.
func Supervise[W Worker](ctx context.Context, cfg Config[W]) (*Supervisor[W], error) {
	s := &Supervisor[W]{cfg: cfg, log: cfg.Log.With("model", cfg.Model, "instance", cfg.Name)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.change.L = &s.mu
	defer context.AfterFunc(ctx, s.cancel)()
	s.machine.Since = time.Now()
	s.start()
	s.mu.Lock()
	err := s.last
	s.mu.Unlock()
	if err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// start starts a worker and passes the outcome to the machine.
func (s *Supervisor[W]) start() {
	ctx, cancel := s.ctx, context.CancelFunc(func() {})
	if s.cfg.Limits.Start > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Limits.Start)
	}
	defer cancel()
	w, err := s.cfg.Start(ctx)
	s.mu.Lock()
	if err == nil && s.machine.State == Closed {
		s.mu.Unlock()
		w.Stop()
		return
	}
	defer s.unlock()
	if err != nil {
		var told *status.Error // it has more information than the timeout
		if ctx.Err() == context.DeadlineExceeded && s.ctx.Err() == nil && !errors.As(err, &told) {
			err = fmt.Errorf("the worker took longer than %v to start: %w", s.cfg.Limits.Start, err)
		}
		s.last = err
		s.eventLocked(StartFailed)
		return
	}
	s.last = nil
	s.current = w
	s.eventLocked(Started)
	s.wg.Go(func() { s.watch(w) })
}

// watch waits for the end of a worker.
func (s *Supervisor[W]) watch(w W) {
	<-w.Done()
	s.mu.Lock()
	defer s.unlock()
	s.diedLocked(w)
}

// diedLocked records a worker's death, once.
func (s *Supervisor[W]) diedLocked(w W) {
	if s.current != w {
		return
	}
	var none W
	s.current = none
	s.last = w.Err()
	s.eventLocked(Died)
}

// eventLocked gives an event to the machine and carries out the action.
func (s *Supervisor[W]) eventLocked(e Event) {
	before := s.machine
	var do Action
	s.machine, do = before.Next(e, time.Now(), s.cfg.Limits)
	switch do {
	case StartIt:
		s.wg.Go(s.start)
	case KillSlow:
		s.current.Kill(fmt.Errorf("the batch took longer than the execution timeout of %v", s.cfg.Limits.Run))
	case KillBroke:
		s.current.Kill(s.last)
	}
	s.armLocked()
	if s.machine.State != before.State {
		s.noteLocked(e)
		s.tellLocked()
		s.change.Broadcast()
	}
}

// armLocked arranges a Tick when the machine needs one. The timer is not
// changed when it fires early enough, so that a batch costs no timer.
func (s *Supervisor[W]) armLocked() {
	due := s.machine.Deadline(s.cfg.Limits)
	if due.IsZero() || (!s.armed.IsZero() && !s.armed.After(due)) {
		return
	}
	s.armed = due
	wait := time.Until(due)
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.tick)
		return
	}
	s.timer.Reset(wait)
}

func (s *Supervisor[W]) tick() {
	s.mu.Lock()
	defer s.unlock()
	s.armed = time.Time{}
	s.eventLocked(Tick)
}

// noteLocked keeps log lines for the operator, except about ordinary batches.
func (s *Supervisor[W]) noteLocked(e Event) {
	m := &s.machine
	add := func(level slog.Level, text string, attrs ...slog.Attr) {
		s.notes = append(s.notes, note{level, text, attrs})
	}
	switch e {
	case Started:
		if m.Restarts > 0 {
			add(slog.LevelInfo, "worker is back", slog.Int("restarts", m.Restarts))
		}
	case StartFailed:
		if m.State == Backoff {
			add(slog.LevelError, "worker could not be started again", slog.Any("err", s.last), slog.Duration("next_start_in", time.Until(m.Resume)))
		}
	case Died:
		if m.State != Closed {
			add(slog.LevelError, "worker died and is started again", slog.Any("err", s.last), slog.Duration("in", max(0, time.Until(m.Resume))), slog.Int("deaths_in_a_row", m.Deaths))
		}
	}
}

// unlock frees the mutex and then writes the notes that were made under it.
func (s *Supervisor[W]) unlock() {
	notes := s.notes
	s.notes = nil
	s.mu.Unlock()
	for _, n := range notes {
		s.log.LogAttrs(context.Background(), n.level, n.text, n.attrs...)
	}
}

// tellLocked calls Changed with a new availability.
func (s *Supervisor[W]) tellLocked() {
	now := s.availabilityLocked()
	if now == s.told {
		return
	}
	s.told = now
	if s.cfg.Changed == nil {
		return
	}
	var why error
	if now == Broken && s.machine.State != Closed {
		why = status.Wrap(status.Unavailable, s.last, s.troubleLocked())
	}
	s.cfg.Changed(now, why)
}

func (s *Supervisor[W]) availabilityLocked() Availability {
	switch {
	case s.machine.State == Ready || s.machine.State == Running:
		return Up
	case s.machine.Broken():
		return Broken
	}
	return Down
}

// Status is the state of a supervised worker.
type Status struct {
	State    State
	Restarts int // how often it was started again
	Deaths   int // how often it died or did not start, in a row
}

// Status returns the worker's current state.
func (s *Supervisor[W]) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{s.machine.State, s.machine.Restarts, s.machine.Deaths}
}

// Close ends the worker gently and returns when it is gone. Nobody may have
// acquired it.
func (s *Supervisor[W]) Close() error {
	var none W
	if w := s.retire(); w != none {
		w.Stop()
	}
	s.wg.Wait()
	return nil
}

// Abort ends the worker at once, for a reason, even while it is acquired: its
// batch is lost. It does not wait; Close does.
func (s *Supervisor[W]) Abort(why error) {
	var none W
	if w := s.retire(); w != none {
		w.Kill(why)
	}
}

// retire makes sure that no worker is started any more and returns the current
// one.
func (s *Supervisor[W]) retire() W {
	s.mu.Lock()
	w := s.current
	s.eventLocked(Close)
	if s.timer != nil {
		s.timer.Stop()
	}
	s.unlock()
	s.cancel()
	return w
}
