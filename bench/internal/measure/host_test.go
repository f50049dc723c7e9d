package measure

import "testing"

func TestShareOfOtherMachines(t *testing.T) {
	before := parseCPUTime("cpu  100 0 50 800 0 0 0 50 7 7\ncpu0 1 2 3\n")
	after := parseCPUTime("cpu  150 0 60 810 0 0 0 80 9 9\n")
	if got := after.since(before); got != 0.3 {
		t.Errorf("got %v, want 0.3: 30 of 100 ticks", got)
	}
	if got := before.since(before); got != 0 {
		t.Errorf("got %v, want 0 when no time has passed", got)
	}
	for _, text := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu a b c d e f g h"} {
		if got := parseCPUTime(text); got != (cpuTime{}) {
			t.Errorf("%q: got %+v, want nothing", text, got)
		}
	}
}
