package engine

import (
	"sync/atomic"
	"time"
)

// A busyTime adds up how long instances run, with those that run now: it grows
// while a batch does, not only at its end. One word has both the number of running
// batches, in its low bits, and a sum of microseconds, from which the beginning of a
// batch is subtracted and to which its end is added. So a reader always sees the two
// of one moment, and the sum, which wraps around, is right after nine years.
type busyTime struct {
	from time.Time // what times count from
	word atomic.Int64
}

// runningBits are the bits for the number of running batches.
const runningBits = 16

func (b *busyTime) micros(t time.Time) int64 { return t.Sub(b.from).Microseconds() }

// start counts a batch that begins to run.
func (b *busyTime) start(t time.Time) { b.word.Add(1 - b.micros(t)<<runningBits) }

// end counts a batch that has run.
func (b *busyTime) end(t time.Time) { b.word.Add(b.micros(t)<<runningBits - 1) }

// read returns how many batches run, and how long instances have run until now.
func (b *busyTime) read(now time.Time) (running int, total time.Duration) {
	w := b.word.Load()
	n := w & (1<<runningBits - 1)
	sum := (w>>runningBits + n*b.micros(now)) & (1<<(64-runningBits) - 1)
	if sum >= 1<<(63-runningBits) { // a batch began after now was read
		sum = 0
	}
	return int(n), time.Duration(sum) * time.Microsecond
}
