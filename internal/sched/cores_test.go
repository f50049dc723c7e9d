package sched

import (
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// busyWith plays callers that send again at once to two instances with batches that
// take a time of their own, and returns how many ran at a time and the mean batch of
// the second half.
func busyWith(t *testing.T, cores func(started int) int, callers, batches int) (most int, rows float64) {
	t.Helper()
	started, later := 0, 0
	var running []*Execution
	cfg := BatcherConfig{Policy: NewAuto(16), Levels: []QueuePolicy{{}}, Signature: fixedSignature(16), Cores: func() int { return cores(started) }}
	v := NewVirtual(cfg, 2, func(e *Execution) {
		running = append(running, e)
		started++
		if most = max(most, len(running)); started > batches/2 {
			later += e.Rows
		}
	}, nil)
	now := time.Unix(0, 0)
	submit := func() {
		if err := v.Submit(&infer.Request{Rows: 1}, now); err != nil {
			t.Fatal(err)
		}
	}
	for range callers {
		submit()
	}
	for started < batches {
		now = now.Add(time.Millisecond)
		v.Advance(now)
		if len(running) == 0 {
			continue
		}
		e := running[0]
		running = running[1:]
		n := len(e.Requests)
		v.End(e, now)
		for range n {
			submit()
		}
	}
	return most, float64(later) / float64(batches-batches/2)
}

// TestNoMoreInstancesRunThanThereAreCores has two instances on one core: one runs
// batches of all callers, and the other when a core has come.
func TestNoMoreInstancesRunThanThereAreCores(t *testing.T) {
	if most, rows := busyWith(t, func(int) int { return 1 }, 8, 4000); most != 1 || rows < 7.5 {
		t.Errorf("one core: got %d at a time and %.1f rows a batch, want 1 and 8", most, rows)
	}
	if most, rows := busyWith(t, func(int) int { return 2 }, 8, 4000); most != 2 || rows > 4.5 {
		t.Errorf("two cores: got %d at a time and %.1f rows a batch, want 2 and 4", most, rows)
	}
	grown := func(started int) int { return 1 + started/500 }
	if most, _ := busyWith(t, grown, 8, 4000); most != 2 {
		t.Errorf("a core more: got %d at a time, want 2", most)
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
