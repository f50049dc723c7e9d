package infer

import "testing"

func TestUsersOfSharedMemoryAreToldOfItsEnd(t *testing.T) {
	s := NewShared(-1, make([]byte, 8192))
	if got := s.Offset(s.Memory[4096:5000]); got != 4096 {
		t.Errorf("got offset %d, want 4096", got)
	}
	var told []string
	for _, name := range []string{"stays", "left"} {
		if !s.Use(name, func() { told = append(told, name) }) {
			t.Error("memory that is there cannot be used")
		}
	}
	s.Leave("left")
	s.End()
	if len(told) != 1 || told[0] != "stays" {
		t.Errorf("told %v, want the one that stays", told)
	}
	if s.Use("late", func() {}) {
		t.Error("memory that has ended can be used")
	}
	s.Leave("late")
	if NewShared(-1, nil).ID == s.ID {
		t.Error("two files have one number")
	}
}
