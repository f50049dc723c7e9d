package spelling

import (
	"strings"
	"testing"
)

func TestDistanceCountsLettersChangedAddedAndDropped(t *testing.T) {
	long := strings.Repeat("x", maxLen+1)
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"serve", "serve", 0},
		{"sevre", "serve", 2},
		{"server", "serve", 1},
		{"serv", "serve", 1},
		{"kitten", "sitting", 3},
		{long, long, len(long)},
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q to %q: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestNearestFindsWhatWasMeant(t *testing.T) {
	names := []string{"serve", "perf", "top"}
	for text, want := range map[string]string{"sevre": "serve", "prf": "perf", "tpo": "top", "tob": "top", "xyz": "", "opt": ""} {
		if got := Nearest(text, names); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
