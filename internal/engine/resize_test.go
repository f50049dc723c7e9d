package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// groupsOf returns the members that a version with these instance groups has.
func groupsOf(groups ...*modelpb.ModelInstanceGroup) (list []member) {
	for _, p := range placements(&modelpb.ModelConfig{InstanceGroup: groups}) {
		list = append(list, member{place: p})
	}
	return list
}

func group(name string, count int32, gpus ...int32) *modelpb.ModelInstanceGroup {
	g := &modelpb.ModelInstanceGroup{Name: name, Count: count, Kind: modelpb.ModelInstanceGroup_KIND_CPU, Gpus: gpus}
	if len(gpus) > 0 {
		g.Kind = modelpb.ModelInstanceGroup_KIND_GPU
	}
	return g
}

func TestReassignKeepsWhatItCan(t *testing.T) {
	passive := group("m_0", 1)
	passive.Passive = true
	tests := []struct {
		name               string
		have, want         []*modelpb.ModelInstanceGroup
		stay, leave, start []string
	}{
		{"more", []*modelpb.ModelInstanceGroup{group("m_0", 1)}, []*modelpb.ModelInstanceGroup{group("m_0", 3)}, []string{"m_0_0"}, nil, []string{"m_0_1", "m_0_2"}},
		{"fewer", []*modelpb.ModelInstanceGroup{group("m_0", 3)}, []*modelpb.ModelInstanceGroup{group("m_0", 2)}, []string{"m_0_0", "m_0_1"}, []string{"m_0_2"}, nil},
		{"the same", []*modelpb.ModelInstanceGroup{group("m_0", 2)}, []*modelpb.ModelInstanceGroup{group("m_0", 2)}, []string{"m_0_0", "m_0_1"}, nil, nil},
		{"another name", []*modelpb.ModelInstanceGroup{group("a", 2)}, []*modelpb.ModelInstanceGroup{group("b", 2)}, []string{"a_0", "a_1"}, nil, nil},
		{
			"two groups of one name keep their names apart",
			[]*modelpb.ModelInstanceGroup{group("a", 1)},
			[]*modelpb.ModelInstanceGroup{group("b", 1), group("a", 1), group("a", 1)},
			[]string{"a_0"},
			nil,
			[]string{"b_0", "a_1"},
		},
		{"passive", []*modelpb.ModelInstanceGroup{group("m_0", 1)}, []*modelpb.ModelInstanceGroup{passive}, nil, []string{"m_0_0"}, []string{"m_0_0"}},
		{"another GPU", []*modelpb.ModelInstanceGroup{group("m_0", 1, 0)}, []*modelpb.ModelInstanceGroup{group("m_0", 1, 0, 1)}, []string{"m_0_0"}, nil, []string{"m_0_1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stay, leave, start := reassign(groupsOf(tt.have...), placements(&modelpb.ModelConfig{InstanceGroup: tt.want}))
			names := func(list []member) (out []string) {
				for _, m := range list {
					out = append(out, m.place.Name)
				}
				return out
			}
			var begun []string
			for _, p := range start {
				begun = append(begun, p.Name)
			}
			if !slices.Equal(names(stay), tt.stay) || !slices.Equal(names(leave), tt.leave) || !slices.Equal(begun, tt.start) {
				t.Errorf("got %v stay, %v leave, %v start, want %v, %v, %v", names(stay), names(leave), begun, tt.stay, tt.leave, tt.start)
			}
		})
	}
}

func count(n int) string { return fmt.Sprintf("instance_group { count: %d kind: KIND_CPU }", n) }

// TestResizeOnlyAddsAndRemovesInstances has callers all the while.
func TestResizeOnlyAddsAndRemovesInstances(t *testing.T) {
	for _, config := range []string{oneInput, batchedInput} {
		dir := repo(t, map[string]string{"m/config.pbtxt": config + count(1), "m/1/": ""})
		e, c := controlled(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for ctx.Err() == nil {
					if _, err := askLatest(context.Background(), e, "m"); err != nil {
						t.Errorf("a request failed: %v", err)
						return
					}
				}
			})
		}
		first, err := e.find("m", 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			n := []int{3, 2, 1}[i%3]
			write(t, dir, "m/config.pbtxt", config+count(n))
			if err := e.Load(t.Context(), "m", Override{}); err != nil {
				t.Fatalf("resize to %d: %v", n, err)
			}
			v, err := e.find("m", 1)
			if err != nil || v.active() != n || v.Config().GetInstanceGroup()[0].GetCount() != int32(n) || v.stats != first.stats || v.sched != first.sched {
				t.Fatalf("resize %d: got %d instances (%v), want %d with the same scheduler and counters", i, v.active(), err, n)
			}
			if got := v.snapshot().Instances; got != n {
				t.Errorf("statistics: got %d instances, want %d", got, n)
			}
		}
		cancel()
		callers.Wait()
		e.work.Wait()
		if got := c.opened.Load(); got != 1 {
			t.Errorf("got %d versions opened, want the first alone", got)
		}
		if alive := c.started.Load() - c.ended.Load(); alive != 1 {
			t.Errorf("got %d instances, want one: those that left are freed", alive)
		}
		wantStates(t, e, "m 1 READY")
	}
}

func TestAnInstanceThatLeavesWaitsForItsResponses(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput + count(2), "m/1/": ""})
	e, c := controlled(t, dir)
	lease, err := e.Acquire("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	r.Hold(lease)
	r.Inputs = append(r.Inputs, in("INPUT0", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
	if err := lease.Infer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "m/config.pbtxt", oneInput+count(1))
	if err := e.Load(t.Context(), "m", Override{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Unload(t.Context(), "m", false); err != nil { // the model must outlive the instance
		t.Fatal(err)
	}
	if got := c.ended.Load(); got != 0 {
		t.Errorf("got %d instances closed while a response is out, want none", got)
	}
	r.Release()
	e.work.Wait()
	if got := c.ended.Load(); got != 2 {
		t.Errorf("got %d instances closed, want both", got)
	}
}

func TestAFailedResizeLeavesTheInstances(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput + count(1), "m/1/": ""})
	e, c := controlled(t, dir)
	c.startFault.Store(true)
	write(t, dir, "m/config.pbtxt", oneInput+count(2))
	err := e.Load(t.Context(), "m", Override{})
	want := "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no more instances;\n"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	wantStates(t, e, "m 1 READY Internal: no more instances")
	if v, err := e.find("m", 1); err != nil || v.active() != 1 {
		t.Errorf("got %v, want the one instance", err)
	}
	c.startFault.Store(false)
	if err := e.Load(t.Context(), "m", Override{}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, e, "m 1 READY")
	write(t, dir, "m/config.pbtxt", oneInput+"instance_group { count: 1 kind: KIND_CPU passive: true }")
	if err := e.Load(t.Context(), "m", Override{}); err == nil {
		t.Error("got no error for passive instances only")
	}
}
