package worker

import (
	"fmt"
	"time"
)

// A State is where a supervised worker is in its life.
//
//	          started            begin
//	Starting ─────────→ Ready ─────────→ Running
//	   ↑ │                │ ↑     end      │ │
//	   │ │ fails          │ └──────────────┘ │ takes too long, or breaks its link
//	   │ │                │ dies             ↓
//	   │ │                │   dies        Killing
//	   │ ↓                ↓ ←──────────────┘
//	   └─────────────── Backoff
//	     pause is over
//
// A worker whose first start fails goes from Starting to Failed, for good: the
// model is then not loaded. Any state goes to Closed.
type State uint8

// The states of a worker.
const (
	Starting State = iota // the process is there or nearly so, the model is loading
	Ready                 // it waits for a batch
	Running               // it runs one
	Killing               // it was killed and is not gone yet
	Backoff               // it is dead and will be started again
	Failed                // its first start failed
	Closed                // it is no longer needed
)

var stateNames = [...]string{"starting", "ready", "running", "killing", "backoff", "failed", "closed"}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", s)
	}
	return stateNames[s]
}

// An Event is something that happens to a worker.
type Event uint8

// The events.
const (
	Started     Event = iota // it has loaded its model
	StartFailed              // it has not
	Begin                    // a batch was given to it
	End                      // the batch is done
	Broke                    // it violated the protocol of its link; it may still be alive
	Died                     // its process is gone
	Tick                     // the deadline has passed, or time has
	Close                    // it is not wanted any more
)

// An Action is what an event makes necessary.
type Action uint8

// The actions.
const (
	Nothing   Action = iota
	StartIt          // start a worker
	KillSlow         // kill it: the batch takes too long
	KillBroke        // kill it: it broke its link
)

// Limits are the times of a Machine.
type Limits struct {
	Start time.Duration // how long a start may take, by its context; zero for no limit
	Run   time.Duration // how long a batch may take; zero for no limit

	First   time.Duration // the pause before the second restart in a row; the first has none
	Longest time.Duration // the longest pause; pauses double up to it
	Healthy time.Duration // a worker that lives this long, or serves a batch, resets the count of deaths
}

// DefaultLimits returns pauses between restarts that suit a model, with no
// limit on starts and batches.
func DefaultLimits() Limits {
	return Limits{First: 100 * time.Millisecond, Longest: 10 * time.Second, Healthy: 10 * time.Second}
}

// A worker counts as broken after this many deaths in a row, fewer if the last
// start failed: the pauses are then so long that requests should fail rather
// than wait. A single failed start is not enough: whatever killed the worker
// may have killed the next one while it loaded.
const (
	brokenAfter         = 4
	brokenAfterUnloaded = 3
)

// A Machine decides what to do with one worker. It is a value and pure: the
// same machine, event and time give the same machine and action. The zero value
// is a worker during its first start.
type Machine struct {
	State    State
	Since    time.Time // when it came into the state, or began the batch
	Resume   time.Time // in Backoff: when to start again
	Deaths   int       // how often it has died or not started, in a row
	Restarts int       // how often it was started again
	ready    time.Time // when it was last started; zero when it never was
	unloaded bool      // the last start failed
}

// Deadline returns when the machine needs its next Tick; zero for never.
func (m Machine) Deadline(l Limits) time.Time {
	switch {
	case m.State == Running && l.Run > 0:
		return m.Since.Add(l.Run)
	case m.State == Backoff:
		return m.Resume
	}
	return time.Time{}
}

// Broken reports whether requests should not wait for the worker: its starts
// fail, or it keeps dying before it has served anything.
func (m Machine) Broken() bool {
	switch m.State {
	case Failed, Closed:
		return true
	case Ready, Running:
		return false
	}
	return m.Deaths >= brokenAfter || (m.unloaded && m.Deaths >= brokenAfterUnloaded)
}

// Next returns the machine after an event and the action to take. Events
// without a meaning in the state change nothing.
func (m Machine) Next(e Event, now time.Time, l Limits) (Machine, Action) {
	if m.State == Closed || m.State == Failed {
		if e == Close {
			return m.to(Closed, now), Nothing
		}
		return m, Nothing
	}
	switch e {
	case Started:
		return m.started(now)
	case StartFailed:
		return m.startFailed(now, l)
	case Begin:
		if m.State == Ready {
			return m.to(Running, now), Nothing
		}
	case End:
		if m.State == Running {
			m.Deaths = 0
			return m.to(Ready, now), Nothing
		}
	case Broke:
		if m.State == Ready || m.State == Running {
			return m.to(Killing, now), KillBroke
		}
	case Died:
		return m.died(now, l)
	case Tick:
		return m.tick(now, l)
	case Close:
		return m.to(Closed, now), Nothing
	}
	return m, Nothing
}

func (m Machine) to(s State, now time.Time) Machine {
	m.State, m.Since = s, now
	return m
}

func (m Machine) started(now time.Time) (Machine, Action) {
	if m.State != Starting {
		return m, Nothing
	}
	m.ready, m.unloaded = now, false
	return m.to(Ready, now), Nothing
}

func (m Machine) startFailed(now time.Time, l Limits) (Machine, Action) {
	switch {
	case m.State != Starting:
		return m, Nothing
	case m.ready.IsZero():
		return m.to(Failed, now), Nothing
	}
	m.unloaded = true
	return m.pause(now, l)
}

func (m Machine) died(now time.Time, l Limits) (Machine, Action) {
	if m.State != Ready && m.State != Running && m.State != Killing {
		return m, Nothing // the start reports a death while it starts
	}
	if now.Sub(m.ready) >= l.Healthy {
		m.Deaths = 0
	}
	return m.pause(now, l)
}

// pause counts a death and starts again, at once or after a pause.
func (m Machine) pause(now time.Time, l Limits) (Machine, Action) {
	m.Deaths++
	wait := pauseBefore(m.Deaths, l)
	if wait == 0 {
		m.Restarts++
		return m.to(Starting, now), StartIt
	}
	m.Resume = now.Add(wait)
	return m.to(Backoff, now), Nothing
}

// pauseBefore returns the pause before the restart after so many deaths in a row.
func pauseBefore(deaths int, l Limits) time.Duration {
	if deaths <= 1 {
		return 0
	}
	wait := l.First
	for range deaths - 2 {
		if wait >= l.Longest {
			break
		}
		wait *= 2
	}
	return min(wait, l.Longest)
}

func (m Machine) tick(now time.Time, l Limits) (Machine, Action) {
	due := m.Deadline(l)
	if due.IsZero() || now.Before(due) {
		return m, Nothing
	}
	switch m.State {
	case Running:
		return m.to(Killing, now), KillSlow
	case Backoff:
		m.Restarts++
		return m.to(Starting, now), StartIt
	}
	return m, Nothing
}
