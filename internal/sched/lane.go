package sched

import (
	"sync"
	"time"

	"shoal/internal/infer"
)

// A lane is the way into an instance that takes batches ahead. It has them run
// in the order in which they were given, and says when each of them began.
type lane struct {
	record Recorder
	given  uint64 // batches so far; under the batcher's mutex

	mu    sync.Mutex // protects the fields below
	left  uint64     // how many have run
	freed time.Time  // when the last of them had
	moved sync.Cond  // left has changed
}

func newLane(record Recorder) *lane {
	l := &lane{record: record}
	l.moved.L = &l.mu
	return l
}

// begin notes that the instance has a batch, if it has no other.
func (l *lane) begin(bt *batch) {
	l.mu.Lock()
	free := l.left == bt.turn
	l.mu.Unlock()
	if free {
		bt.begun = true
		l.record.Started(&bt.run)
	}
}

// Await implements infer.Turn.
func (b *batch) Await() {
	if b.begun {
		return
	}
	freed := b.worker.lane.await(b.turn)
	b.begun = true
	if freed.After(b.run.Times.Start) {
		b.run.Times = infer.Times{Start: freed}
	}
	b.worker.lane.record.Started(&b.run)
}

func (l *lane) await(turn uint64) (freed time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.left != turn {
		l.moved.Wait()
	}
	return l.freed
}

// leave lets the next batch begin.
func (l *lane) leave(now time.Time) {
	l.mu.Lock()
	l.left++
	l.freed = now
	l.mu.Unlock()
	l.moved.Broadcast()
}
