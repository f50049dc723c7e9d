package worker

import (
	"errors"
	"testing"
)

// offers keeps what a member's watcher was told last.
func offers(m *Member) *bool {
	offered := true
	m.Watch(func(available bool) { offered = available })
	return &offered
}

func TestGroupKeepsWorkFromThoseWhoCannotServe(t *testing.T) {
	g := new(Group)
	a, b := g.Join(), g.Join()
	onA, onB := offers(a), offers(b)
	for i, c := range []struct {
		name   string
		do     func()
		a, b   bool
		broken bool
	}{
		{"both are up", func() {}, true, true, false},
		{"one is down", func() { a.Set(Down, nil) }, false, true, false},
		{"both are down and will be back", func() { b.Set(Down, nil) }, false, false, false},
		{"one is broken, the other will be back", func() { a.Set(Broken, errors.New("gone")) }, false, false, false},
		{"both are broken: requests are told at once", func() { b.Set(Broken, errors.New("gone")) }, true, true, true},
		{"one is back: the broken one must not draw requests", func() { b.Set(Up, nil) }, false, true, false},
		{"the one that is up leaves", func() { b.Leave() }, true, true, true},
		{"the last one is back", func() { a.Set(Up, nil) }, true, true, false},
	} {
		c.do()
		if *onA != c.a || *onB != c.b || (g.Trouble() != nil) != c.broken {
			t.Errorf("step %d, %s: got %v %v broken %v, want %v %v broken %v", i, c.name, *onA, *onB, g.Trouble(), c.a, c.b, c.broken)
		}
	}
}

func TestEveryWatcherIsToldOfAWorkerThatIsAlreadyDown(t *testing.T) {
	g := new(Group)
	a := g.Join()
	g.Join()
	a.Set(Down, nil)
	first, second := offers(a), offers(a)
	if *first || *second {
		t.Errorf("got %v and %v, want both watchers told that it is not available", *first, *second)
	}
	a.Set(Up, nil)
	if !*first || !*second {
		t.Errorf("got %v and %v, want both told that it is back", *first, *second)
	}
}
