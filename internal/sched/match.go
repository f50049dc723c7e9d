package sched

import (
	"shoal/internal/infer"
	"shoal/internal/model"
)

// A matcher decides which requests of a model can share a batch. Shapes that
// the model fixes were compared when the request was checked.
type matcher struct {
	variable []bool // by input: its shape must be equal
	any      bool   // whether any input is variable
	optional bool   // whether the inputs given must be the same
}

func newMatcher(sig *model.Signature) matcher {
	m := matcher{variable: make([]bool, len(sig.Inputs)), optional: sig.Required < len(sig.Inputs)}
	for i := range sig.Inputs {
		in := &sig.Inputs[i]
		m.variable[i] = !in.Dims.Fixed() && !in.Ragged
		m.any = m.any || m.variable[i]
	}
	return m
}

// compares reports whether requests have to be compared at all.
func (m *matcher) compares() bool { return m.any || m.optional }

// differs reports whether b cannot be in one batch with a. Inputs are ordered
// by their index.
func (m *matcher) differs(a, b *infer.Request) bool {
	if !m.compares() || a == b {
		return false
	}
	if len(a.Inputs) != len(b.Inputs) {
		return true
	}
	for i := range a.Inputs {
		x, y := &a.Inputs[i], &b.Inputs[i]
		if x.Index != y.Index || (m.variable[x.Index] && !x.Shape[1:].Equal(y.Shape[1:])) {
			return true
		}
	}
	return false
}
