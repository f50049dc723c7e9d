package judge

import (
	"strings"
	"testing"
)

func TestFirstUnexpectedAnswerEndsTheRun(t *testing.T) {
	var h Health
	h.Tick(1, 100)
	h.Fail("the answer is not the expected one: x", true, true)
	h.Tick(2, 100)
	if !strings.Contains(h.Why, "not the expected one") {
		t.Errorf("got %q, want the run ended by it", h.Why)
	}
}
