package main

import (
	"strings"
	"testing"
	"time"
)

func TestMissedNamesEachFloor(t *testing.T) {
	good := results{
		Costs:    []cost{summarise(16, []once{{CPU: 5000}, {CPU: 900, Allocs: 0.001}, {CPU: 800}})},
		Lateness: []lateness{{Name: "idle process", Floor: 60, P50: 60}, {Name: "under load", P50: 5000}},
	}
	if got := good.missed(); len(got) != 0 || strings.Contains(good.page(), "MISSED") {
		t.Errorf("got %q, want nothing missed: the median is 900 ns and nothing is asked under load", got)
	}
	bad := results{
		Costs:    []cost{summarise(256, []once{{CPU: 1001, Allocs: 1}})},
		Lateness: []lateness{{Name: "idle process", Floor: 60, P50: 61}},
	}
	want := "256 callers: 1001 ns of CPU (at most 1000), 256 callers: 1.000 allocations (none), idle process: 61 us late (at most 60)"
	if got := strings.Join(bad.missed(), ", "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := strings.Count(bad.page(), "MISSED"); got != 3 {
		t.Errorf("got %d times MISSED, want 3", got)
	}
}

func TestCostCountsEveryRequest(t *testing.T) {
	got, err := measureCost(t.Context(), 7, 1000)
	if err != nil || got.CPU <= 0 || got.MeanBatch < 1 || got.MeanBatch > 7 {
		t.Errorf("got %+v, %v, want some CPU and batches of 1 to 7", got, err)
	}
}

func TestLatenessIsCountedFromTheEndOfTheDelay(t *testing.T) {
	o := options{waits: 3, delay: 2 * time.Millisecond, pause: time.Microsecond}
	for _, loaders := range []int{0, 2} {
		got, err := measureLateness(t.Context(), o, loaders)
		if err != nil || got.P50 < 0 || got.Max < got.P50 || got.Max == 0 {
			t.Errorf("%d callers beside: got %+v, %v, want some lateness", loaders, got, err)
		}
	}
}
