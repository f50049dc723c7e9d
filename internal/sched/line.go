package sched

// A line has calls leave one after the other, where answers must keep an order:
// of calls that are all woken at once, any may be the first to write its answer.
// The batcher's mutex protects it.
type line struct {
	last *call // the newest in it, nil when it is empty
}

// join adds the calls of a batch that has run. The first in the line may leave.
func (l *line) join(entries []entry) {
	for i := range entries {
		c := entries[i].call
		if l.last == nil {
			c.signal()
		} else {
			l.last.after = c
		}
		l.last = c
	}
}

// leave takes out the first, which has been told that it may leave, and tells
// the next.
func (l *line) leave(c *call) {
	if c.after == nil {
		if l.last == c {
			l.last = nil
		}
		return
	}
	c.after.signal()
	c.after = nil
}
