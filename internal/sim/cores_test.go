package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ends has processors compute until all tasks have ended, and returns when each did.
func ends(p *processors, tasks int) map[int]time.Duration {
	at := map[int]time.Duration{}
	for len(at) < tasks {
		now, ok := p.next()
		if !ok {
			return at
		}
		if t := p.step(now); t != nil {
			at[t.caller] = now
		}
	}
	return at
}

func TestThreadsShareCoresInSlices(t *testing.T) {
	p := &processors{Cores: Cores{Number: 1, Slice: 2 * ms, Threads: 1}}
	p.begin(0, &task{event: event{caller: 1}, left: 5 * ms}) // has the core at 0, 4 and 7 ms
	p.begin(0, &task{event: event{caller: 2}, left: 3 * ms}) // at 2 and 6 ms
	if diff := cmp.Diff(map[int]time.Duration{1: 8 * ms, 2: 7 * ms}, ends(p, 2)); diff != "" {
		t.Errorf("when the tasks end (-want +got):\n%s", diff)
	}
}

func TestTasksWaitForAThread(t *testing.T) {
	p := &processors{Cores: Cores{Number: 2, Slice: 2 * ms, Threads: 1}}
	for n := range 3 {
		p.do(0, &p.client, event{caller: n}, ms)
	}
	p.do(0, &p.server, event{caller: 3}, 4*ms)
	if diff := cmp.Diff(map[int]time.Duration{0: ms, 1: 2 * ms, 2: 3 * ms, 3: 4 * ms}, ends(p, 4)); diff != "" {
		t.Errorf("when the tasks end, of a caller's only thread and one of the server (-want +got):\n%s", diff)
	}
}

// A request costs 1 ms of one core beside its batch of 3 ms on the other: with two callers
// an instance that runs one at a time is never idle.
func TestCallersComputeBesideBatches(t *testing.T) {
	setup := Setup{
		Policy: statics(1)[0], MaxRows: 1, Instances: 1, Cost: line(3*ms, 0), Load: Load{Callers: 2, Turnaround: [2]time.Duration{ms / 2, ms / 2}},
		Cores: Cores{Number: 2, Slice: 2 * ms, Threads: 2, Server: ms / 2}, Requests: 1000, Warmup: 10,
	}
	if got, want := Run(setup).Throughput, 1000./3; got < 0.99*want || got > 1.01*want {
		t.Errorf("got %.1f requests a second on two cores, want %.1f", got, want)
	}
	setup.Cores.Number = 1
	if got, want := Run(setup).Throughput, 1000./4; got < 0.99*want || got > 1.01*want {
		t.Errorf("got %.1f requests a second on one core, want %.1f", got, want)
	}
}
