package worker

import (
	"testing"
	"time"
)

const ms = time.Millisecond

var (
	t0     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limits = Limits{Run: 500 * ms, First: 100 * ms, Longest: 1000 * ms, Healthy: 10 * time.Second}
)

// A step is an event at a time after t0, and what it must lead to.
type step struct {
	at    time.Duration
	event Event
	state State
	do    Action
}

func TestMachine(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"serves batches", []step{
			{0, Started, Ready, Nothing},
			{1 * ms, Begin, Running, Nothing},
			{2 * ms, End, Ready, Nothing},
			{3 * ms, Begin, Running, Nothing},
		}},
		{"the first start fails for good", []step{
			{5 * ms, StartFailed, Failed, Nothing},
			{6 * ms, Tick, Failed, Nothing},
			{7 * ms, Started, Failed, Nothing},
			{8 * ms, Close, Closed, Nothing},
		}},
		{"the first restart comes at once", []step{
			{0, Started, Ready, Nothing},
			{1 * ms, Begin, Running, Nothing},
			{2 * ms, Died, Starting, StartIt},
			{3 * ms, End, Starting, Nothing},
			{50 * ms, Started, Ready, Nothing},
		}},
		{"it dies while idle", []step{
			{0, Started, Ready, Nothing},
			{1 * ms, Died, Starting, StartIt},
		}},
		{"pauses double while deaths follow each other, up to the longest", []step{
			{0, Started, Ready, Nothing},
			{0, Died, Starting, StartIt},
			{0, Started, Ready, Nothing},
			{0, Died, Backoff, Nothing},
			{99 * ms, Tick, Backoff, Nothing},
			{100 * ms, Tick, Starting, StartIt},
			{100 * ms, Started, Ready, Nothing},
			{100 * ms, Died, Backoff, Nothing},
			{299 * ms, Tick, Backoff, Nothing},
			{300 * ms, Tick, Starting, StartIt},
			{300 * ms, StartFailed, Backoff, Nothing},
			{700 * ms, Tick, Starting, StartIt},
			{700 * ms, StartFailed, Backoff, Nothing},
			{1500 * ms, Tick, Starting, StartIt},
			{1500 * ms, StartFailed, Backoff, Nothing},
			{2499 * ms, Tick, Backoff, Nothing},
			{2500 * ms, Tick, Starting, StartIt},
			{2500 * ms, StartFailed, Backoff, Nothing},
			{3499 * ms, Tick, Backoff, Nothing},
			{3500 * ms, Tick, Starting, StartIt},
		}},
		{"a served batch ends the row", []step{
			{0, Started, Ready, Nothing},
			{0, Died, Starting, StartIt},
			{0, Started, Ready, Nothing},
			{1 * ms, Begin, Running, Nothing},
			{2 * ms, End, Ready, Nothing},
			{3 * ms, Died, Starting, StartIt},
		}},
		{"a long life ends the row, even if its first batch kills it", []step{
			{0, Started, Ready, Nothing},
			{0, Died, Starting, StartIt},
			{0, Started, Ready, Nothing},
			{9999 * ms, Begin, Running, Nothing},
			{10000 * ms, Died, Starting, StartIt},
		}},
		{"a short life does not", []step{
			{0, Started, Ready, Nothing},
			{0, Died, Starting, StartIt},
			{0, Started, Ready, Nothing},
			{9998 * ms, Begin, Running, Nothing},
			{9999 * ms, Died, Backoff, Nothing},
		}},
		{"a batch that takes too long is killed once", []step{
			{0, Started, Ready, Nothing},
			{100 * ms, Begin, Running, Nothing},
			{599 * ms, Tick, Running, Nothing},
			{600 * ms, Tick, Killing, KillSlow},
			{700 * ms, Tick, Killing, Nothing},
			{700 * ms, End, Killing, Nothing},
			{701 * ms, Died, Starting, StartIt},
		}},
		{"each batch has the whole time", []step{
			{0, Started, Ready, Nothing},
			{100 * ms, Begin, Running, Nothing},
			{500 * ms, End, Ready, Nothing},
			{550 * ms, Begin, Running, Nothing},
			{600 * ms, Tick, Running, Nothing},
			{1050 * ms, Tick, Killing, KillSlow},
		}},
		{"a broken link is a death", []step{
			{0, Started, Ready, Nothing},
			{1 * ms, Begin, Running, Nothing},
			{2 * ms, Broke, Killing, KillBroke},
			{3 * ms, Died, Starting, StartIt},
		}},
		{"no restart after close", []step{
			{0, Started, Ready, Nothing},
			{1 * ms, Close, Closed, Nothing},
			{2 * ms, Died, Closed, Nothing},
			{3 * ms, Tick, Closed, Nothing},
		}},
		{"close during a pause", []step{
			{0, Started, Ready, Nothing},
			{0, Died, Starting, StartIt},
			{0, StartFailed, Backoff, Nothing},
			{1 * ms, Close, Closed, Nothing},
			{200 * ms, Tick, Closed, Nothing},
		}},
		{"a batch cannot begin while it starts", []step{
			{0, Begin, Starting, Nothing},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := Machine{Since: t0}
			for i, s := range c.steps {
				var do Action
				m, do = m.Next(s.event, t0.Add(s.at), limits)
				if m.State != s.state || do != s.do {
					t.Fatalf("step %d, event %d at %v: got state %v and action %d, want %v and %d", i, s.event, s.at, m.State, do, s.state, s.do)
				}
			}
		})
	}
}

func TestMachineWithoutExecutionTimeoutNeverKills(t *testing.T) {
	m := Machine{State: Running, Since: t0}
	if got := m.Deadline(DefaultLimits()); !got.IsZero() {
		t.Errorf("got deadline %v, want none", got)
	}
	if m, do := m.Next(Tick, t0.Add(1000*time.Hour), DefaultLimits()); m.State != Running || do != Nothing {
		t.Errorf("got %v and action %d, want running and nothing", m.State, do)
	}
}

func TestMachineIsBrokenWhenItMayNotComeBack(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Machine
		want bool
	}{
		{"ready", Machine{State: Ready}, false},
		{"the first restart is under way", Machine{State: Starting, Deaths: 1}, false},
		{"a short pause", Machine{State: Backoff, Deaths: 3}, false},
		{"a long pause", Machine{State: Backoff, Deaths: 4}, true},
		{"back after many deaths", Machine{State: Ready, Deaths: 4}, false},
		{"one start failed", Machine{State: Starting, Deaths: 2, unloaded: true}, false},
		{"two starts failed", Machine{State: Starting, Deaths: 3, unloaded: true}, true},
		{"failed", Machine{State: Failed}, true},
		{"closed", Machine{State: Closed}, true},
	} {
		if got := c.m.Broken(); got != c.want {
			t.Errorf("%s: got broken %v, want %v", c.name, got, c.want)
		}
	}
}
