package sched

import (
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// A loop is callers that send again at once to instances whose batches end one after
// the other.
type loop struct {
	t       *testing.T
	v       *Virtual
	now     time.Time
	running []*Execution
	started int
	begun   func(*Execution)
}

func startLoop(t *testing.T, instances, callers int, cores func(started int) int) *loop {
	t.Helper()
	l := &loop{t: t, now: time.Unix(0, 0), begun: func(*Execution) {}}
	cfg := BatcherConfig{Policy: NewAuto(64), Levels: []QueuePolicy{{}}, Signature: fixedSignature(64), Cores: func() int { return cores(l.started) }}
	l.v = NewVirtual(cfg, instances, func(e *Execution) {
		l.running = append(l.running, e)
		l.started++
		l.begun(e)
	}, nil)
	l.submit(callers)
	return l
}

func (l *loop) submit(n int) {
	l.t.Helper()
	for range n {
		if err := l.v.Submit(&infer.Request{Rows: 1}, l.now); err != nil {
			l.t.Fatal(err)
		}
	}
}

// end ends the batch that began first, if there is one, and its callers send again.
func (l *loop) end(after time.Duration) {
	l.t.Helper()
	l.now = l.now.Add(after)
	l.v.Advance(l.now)
	if len(l.running) == 0 {
		return
	}
	e := l.running[0]
	l.running = l.running[1:]
	n := len(e.Requests)
	l.v.End(e, l.now)
	l.submit(n)
}

// busyWith runs a loop and returns how many batches ran at a time and their mean rows in
// its second half. One ends after each step.
func busyWith(t *testing.T, cores func(started int) int, step time.Duration, instances, callers, batches int) (most int, rows float64) {
	t.Helper()
	l := startLoop(t, instances, callers, cores)
	later := 0
	l.begun = func(e *Execution) {
		if l.started > batches/2 {
			most = max(most, len(l.running))
			later += e.Rows
		}
	}
	for l.started < batches {
		l.end(step)
	}
	return most, float64(later) / float64(batches-batches/2)
}

// TestNoMoreInstancesRunThanThereAreCores has two instances on one core: one runs
// batches of all callers, and the other when a core has come.
func TestNoMoreInstancesRunThanThereAreCores(t *testing.T) {
	if most, rows := busyWith(t, func(int) int { return 1 }, time.Millisecond, 2, 8, 4000); most != 1 || rows < 7.5 {
		t.Errorf("one core: got %d at a time and %.1f rows a batch, want 1 and 8", most, rows)
	}
	if most, rows := busyWith(t, func(int) int { return 2 }, time.Millisecond, 2, 8, 4000); most != 2 || rows > 4.5 {
		t.Errorf("two cores: got %d at a time and %.1f rows a batch, want 2 and 4", most, rows)
	}
	grown := func(started int) int { return 1 + started/500 }
	if most, _ := busyWith(t, grown, time.Millisecond, 2, 8, 4000); most != 2 {
		t.Errorf("a core more: got %d at a time, want 2", most)
	}
}

// TestFewInstancesHaveBriefRuns has many callers for each core, for whom few large batches
// cost less, or few, whom another instance answers sooner.
func TestFewInstancesHaveBriefRuns(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		took                      time.Duration
		cores, instances, callers int
		most                      int
	}{
		{"brief runs", 10 * time.Microsecond, 2, 2, 8, 1},
		{"long runs", time.Millisecond, 2, 2, 8, 2},
		{"few callers for each core", 10 * time.Microsecond, 4, 2, 8, 2},
		{"more requests than fit into full batches", 10 * time.Microsecond, 2, 2, 256, 2},
		{"many cores", 5 * time.Microsecond, 16, 4, 48, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			step := tt.took / time.Duration(tt.most)
			if most, _ := busyWith(t, func(int) int { return tt.cores }, step, tt.instances, tt.callers, 4000); most != tt.most {
				t.Errorf("got %d at a time, want %d", most, tt.most)
			}
		})
	}
}

// TestALongRunAmongBriefOnesKeepsNobodyWaiting has a run that does not end when the
// others do.
func TestALongRunAmongBriefOnesKeepsNobodyWaiting(t *testing.T) {
	l := startLoop(t, 2, 8, func(int) int { return 2 })
	for l.started < 400 {
		l.end(10 * time.Microsecond)
	}
	if len(l.running) != 1 {
		t.Fatalf("got %d batches that run, want one: runs are brief", len(l.running))
	}
	long := l.running[0]
	l.submit(4) // they wait: the other instance is kept
	if len(l.running) != 1 {
		t.Fatalf("got %d batches that run, want the requests to wait for the one", len(l.running))
	}
	for l.now.Before(long.Times.Start.Add(2*briefLimit)) && len(l.running) == 1 {
		next := l.v.Next()
		if next.IsZero() {
			t.Fatal("nothing is due, want the other instance to run")
		}
		l.now = next
		l.v.Advance(l.now)
	}
	if waited := l.now.Sub(long.Times.Start); len(l.running) != 2 || waited > briefLimit {
		t.Errorf("got %d batches that run after %v, want two within %v", len(l.running), waited, briefLimit)
	}
	for range 100 {
		l.end(10 * time.Microsecond)
	}
	if len(l.running) != 1 {
		t.Errorf("got %d batches that run afterwards, want one again", len(l.running))
	}
}

// TestBriefRunsOfFewCallersNeedNoTimer has so few callers that all instances run.
func TestBriefRunsOfFewCallersNeedNoTimer(t *testing.T) {
	l := startLoop(t, 2, 8, func(int) int { return 4 })
	for l.started < 400 {
		l.end(10 * time.Microsecond)
		if next := l.v.Next(); l.started > 10 && !next.IsZero() {
			t.Fatalf("after %d batches something is due in %v, want nothing", l.started, next.Sub(l.now))
		}
	}
}

// TestOnlyInstancesThatComputeOnThreadsAreLimited has instances that compute on the
// threads of their callers, and one that waits for another process.
func TestOnlyInstancesThatComputeOnThreadsAreLimited(t *testing.T) {
	for _, tt := range []struct {
		name      string
		instances []backend.Instance
		want      int
	}{
		{"computing", []backend.Instance{&computer{}, &computer{}}, 1},
		{"one waits for another process", []backend.Instance{&computer{}, &remote{}}, 2},
	} {
		cfg := BatcherConfig{Policy: NewAuto(16), Levels: []QueuePolicy{{}}, Signature: fixedSignature(16), Cores: func() int { return 1 }}
		b, err := StartBatcher(cfg, tt.instances, &counting{})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.usable(); got != tt.want {
			t.Errorf("%s: got %d usable instances, want %d", tt.name, got, tt.want)
		}
		b.Close()
	}
}

// A remote instance does not compute on the thread of its caller.
type remote struct{}

func (*remote) Run(*infer.Batch) error { return nil }
func (*remote) Close() error           { return nil }
