package sched

// A delivery wakes calls one after the other where answers must keep an order:
// of calls that are woken at once, any may be the first to write its answer.
// The batcher's mutex protects it.
type delivery struct {
	last *call // the newest, nil when there is none
}

// add adds the calls of a batch that has run. The first of all is woken.
func (d *delivery) add(entries []entry) {
	for i := range entries {
		c := entries[i].call
		if d.last == nil {
			c.signal()
		} else {
			d.last.after = c
		}
		d.last = c
	}
}

// remove removes the first call, which was woken, and wakes the next.
func (d *delivery) remove(c *call) {
	if c.after == nil {
		if d.last == c {
			d.last = nil
		}
		return
	}
	c.after.signal()
	c.after = nil
}
