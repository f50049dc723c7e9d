package perf

import (
	"testing"

	"shoal/internal/perf/result"
)

func TestLevelsOfARangeAreCountedBeforehand(t *testing.T) {
	for text, want := range map[string]int{"4": 1, "1:8": 8, "1:16:5": 4, "2:16:2": 8, "0.1:0.5:0.1": 5, "1:0": 0, "3:3": 1} {
		r, err := ParseRange(text, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Count(); got != want {
			t.Errorf("%s: got %d levels, want %d", text, got, want)
		}
		if want == 0 {
			continue
		}
		find, passes := search{levels: r}, 0
		for _, more := find.next(true); more; _, more = find.next(true) {
			passes++
		}
		if passes != want {
			t.Errorf("%s: %d levels are measured, want %d", text, passes, want)
		}
	}
	s := Settings{Range: Range{Start: 1, End: 64, Step: 1}, Plan: result.Plan{BinarySearch: true}}
	if got := s.Levels(); got != 0 {
		t.Errorf("a search: got %d levels, want 0, which is not known", got)
	}
}
