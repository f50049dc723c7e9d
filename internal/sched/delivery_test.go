package sched

import (
	"slices"
	"testing"
)

// told returns which of the calls may leave, and forgets that they were told.
func told(calls []*call) (which []int) {
	for i, c := range calls {
		select {
		case <-c.signals:
			which = append(which, i)
		default:
		}
	}
	return which
}

func TestDeliveryWakesCallsOneByOneInOrder(t *testing.T) {
	var l delivery
	calls, entries := make([]*call, 5), make([]entry, 5)
	for i := range calls {
		calls[i] = &call{signals: make(chan bool, 1)}
		entries[i].call = calls[i]
	}
	for _, step := range []struct {
		name string
		act  func()
		want []int
	}{
		{"the first of a batch may leave", func() { l.add(entries[:2]) }, []int{0}},
		{"a batch that comes later waits", func() { l.add(entries[2:4]) }, nil},
		{"each tells the next", func() { l.remove(calls[0]) }, []int{1}},
		{"also of the next batch", func() { l.remove(calls[1]) }, []int{2}},
		{"one that was never in it tells nobody", func() { l.remove(calls[4]) }, nil},
		{"the last but one", func() { l.remove(calls[2]) }, []int{3}},
		{"the last", func() { l.remove(calls[3]) }, nil},
		{"a call is woken at once when there is no other", func() { l.add(entries[4:]) }, []int{4}},
	} {
		step.act()
		if got := told(calls); !slices.Equal(got, step.want) {
			t.Errorf("%s: got told %v, want %v", step.name, got, step.want)
		}
	}
}
