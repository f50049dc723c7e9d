package sched

import "slices"

// A fifo is a first-in first-out list of entries.
type fifo struct {
	list []entry // those before head were removed
	head int
	rows int
}

func (f *fifo) len() int { return len(f.list) - f.head }

// waiting returns the entries, the oldest first.
func (f *fifo) waiting() []entry { return f.list[f.head:] }

func (f *fifo) push(e entry) {
	if len(f.list) == cap(f.list) && f.head > len(f.list)/2 { // rather than grow
		n := copy(f.list, f.list[f.head:])
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	f.list = append(f.list, e)
	f.rows += e.rows
}

// pushList adds calls that are linked by next, the newest first, and returns
// how many.
func (f *fifo) pushList(newest *call) int {
	before := f.len()
	for c := newest; c != nil; c = c.next {
		f.push(c.entry())
	}
	slices.Reverse(f.waiting()[before:])
	return f.len() - before
}

// pop takes the oldest entry out. There must be one.
func (f *fifo) pop() entry {
	e := f.list[f.head]
	f.list[f.head] = entry{}
	f.rows -= e.rows
	if f.head++; f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
	}
	return e
}

// prune removes the entries for which gone returns true, and returns how many.
func (f *fifo) prune(gone func(entry) bool) int {
	before := f.len()
	left := slices.DeleteFunc(f.waiting(), func(e entry) bool {
		out := gone(e)
		if out {
			f.rows -= e.rows
		}
		return out
	})
	f.list = f.list[:f.head+len(left)]
	return before - len(left)
}
