package sched

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFifoKeepsTheOrderOfArrival holds a fifo against a plain list through many
// random steps, so that it grows, moves up and empties.
func TestFifoKeepsTheOrderOfArrival(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var f fifo
	var want []int
	for step := range 20_000 {
		switch n := 1 + rng.IntN(20); rng.IntN(5) {
		case 0, 1:
			f.push(entry{rows: n})
			want = append(want, n)
		case 2: // from the newest to the oldest, as they are in an inbox
			var newest *call
			for i := range n {
				newest = &call{next: newest, rows: i}
				want = append(want, i)
			}
			if got := f.pushList(newest); got != n {
				t.Fatalf("step %d: got %d pushed, want %d", step, got, n)
			}
		case 3:
			for range min(2*n, f.len()) {
				if got := f.pop().rows; got != want[0] {
					t.Fatalf("step %d: got %d out first, want %d", step, got, want[0])
				}
				want = want[1:]
			}
		case 4:
			gone := func(rows int) bool { return rows == n }
			before := len(want)
			want = slices.DeleteFunc(want, gone)
			if got := f.prune(func(e entry) bool { return gone(e.rows) }); got != before-len(want) {
				t.Fatalf("step %d: got %d taken out, want %d", step, got, before-len(want))
			}
		}
		checkFifo(t, step, &f, want)
	}
	if cap(f.list) > 4096 {
		t.Errorf("got room for %d entries, want it to stay near the most that waited", cap(f.list))
	}
}

func checkFifo(t *testing.T, step int, f *fifo, want []int) {
	t.Helper()
	sum := 0
	for i, e := range f.waiting() {
		if i >= len(want) || e.rows != want[i] {
			t.Fatalf("step %d: got %d at place %d, want %v", step, e.rows, i, want)
		}
		sum += e.rows
	}
	if f.len() != len(want) || f.rows != sum {
		t.Fatalf("step %d: got %d entries with %d rows, want %d with %d", step, f.len(), f.rows, len(want), sum)
	}
	for _, e := range f.list[:f.head] {
		if e != (entry{}) {
			t.Fatalf("step %d: got an entry kept after it left, want none", step)
		}
	}
}
