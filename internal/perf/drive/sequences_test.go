package drive

import (
	"strings"
	"testing"
)

func TestSequencesTakeAsManyStepsAsTheirStream(t *testing.T) {
	q := NewSequencer(Sequences{First: 1}, []Stream{{0, 3}, {3, 2}}, 1)
	var got []int
	for range 2 {
		s := q.begin()
		for !s.over() {
			m, at := s.step()
			got = append(got, m)
			if at.Start != (m == 0 || m == 3) || at.End != (m == 2 || m == 4) {
				t.Errorf("message %d: got %+v, want a start at the stream's first and an end at its last", m, at)
			}
		}
		q.end(s)
	}
	for i, m := range got {
		if m != i || len(got) != 5 {
			t.Fatalf("got messages %v, want 0 to 4", got)
		}
	}
}

func TestSequenceSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		s    Sequences
		most int
		want string
	}{
		{Sequences{First: 0}, 1, "starts at 0"},
		{Sequences{First: 5, End: 5}, 1, "has no ids"},
		{Sequences{First: 1, End: 5}, 5, "has 4 ids, but 5 sequences"},
		{Sequences{First: 1, End: 5}, 4, ""},
		{Sequences{First: 1}, 1000, ""},
	} {
		err := c.s.Check(c.most)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v with %d: got %v, want %q", c.s, c.most, err, c.want)
		}
	}
}
