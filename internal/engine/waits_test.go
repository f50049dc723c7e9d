package engine

import (
	"slices"
	"strings"
	"testing"

	"shoal/internal/backend"
)

func TestWaitsWithoutEndAreFound(t *testing.T) {
	holder := func(model string, parents ...*backend.Holder) *backend.Holder {
		return &backend.Holder{Model: model, Version: 1, Parents: parents}
	}
	type wait struct {
		by *backend.Holder
		on string
	}
	a, b, c := holder("a"), holder("b"), holder("c")
	a2, childOfA := holder("a"), holder("b", a)
	for _, tt := range []struct {
		name      string
		instances map[string]int
		waits     []wait // only the last may fail
		want      string // the chain; empty when all may wait
	}{
		{"another model", map[string]int{"a": 1, "b": 1}, []wait{{a, "b"}}, ""},
		{"itself", map[string]int{"a": 1}, []wait{{a, "a"}}, "a -> a"},
		{"itself, with an instance left", map[string]int{"a": 2}, []wait{{a, "a"}}, ""},
		{"itself, when all instances do", map[string]int{"a": 2}, []wait{{a, "a"}, {a2, "a"}}, "a -> a"},
		{"two wait for each other", map[string]int{"a": 1, "b": 1}, []wait{{a, "b"}, {b, "a"}}, "b -> a -> b"},
		{"three in a circle", map[string]int{"a": 1, "b": 1, "c": 1}, []wait{{a, "b"}, {b, "c"}, {c, "a"}}, "c -> a -> b -> c"},
		{"an instance is left in the circle", map[string]int{"a": 1, "b": 2}, []wait{{a, "b"}, {b, "a"}}, ""},
		{"back to who waits for it", map[string]int{"a": 1, "b": 5}, []wait{{a, "b"}, {childOfA, "a"}}, "b -> a -> b"},
		{"one of several calls", map[string]int{"a": 1, "b": 1}, []wait{{a, "b"}, {a, "c"}, {b, "a"}}, "b -> a -> b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w waitGraph
			instances := func(n node) int { return tt.instances[n.model] }
			for i, one := range tt.waits {
				err := w.begin(one.by, node{one.on, 1}, instances)
				switch last := i == len(tt.waits)-1; {
				case err != nil && (!last || tt.want == ""):
					t.Fatalf("wait %d: got %v, want none", i, err)
				case err == nil && last && tt.want != "":
					t.Errorf("got no error, want %s", tt.want)
				case err != nil && !strings.Contains(err.Error(), tt.want):
					t.Errorf("got %v, want %s", err, tt.want)
				}
			}
			for _, one := range tt.waits {
				if slices.Contains(w.by[one.by], node{one.on, 1}) {
					w.end(one.by, node{one.on, 1})
				}
			}
			if len(w.by) != 0 {
				t.Errorf("got %v left, want nothing", w.by)
			}
		})
	}
}
