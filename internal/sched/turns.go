package sched

import (
	"sync"
	"time"

	"shoal/internal/infer"
)

// turns makes the batches of an instance that takes some ahead run in the order
// in which it got them, and records when each of them began.
type turns struct {
	record Recorder
	given  uint64 // batches so far; under the pool's mutex

	mu    sync.Mutex // protects the fields below
	ended uint64     // how many have run
	freed time.Time  // when the last of them had
	moved sync.Cond  // ended has changed
}

func newTurns(record Recorder) *turns {
	t := &turns{record: record}
	t.moved.L = &t.mu
	return t
}

// A turn is the position of a batch among those of an instance. The zero turn
// is for an instance that has one batch at a time.
type turn struct {
	turns *turns
	place uint64 // how many batches were given before
	begun bool
	run   *infer.Batch
}

// next returns the turn of the next batch. The pool's mutex is held.
func (t *turns) next(run *infer.Batch) turn {
	if t == nil {
		return turn{}
	}
	t.given++
	return turn{turns: t, place: t.given - 1, run: run}
}

// begin records that the instance has the batch, if it has no other.
func (t *turn) begin() {
	t.turns.mu.Lock()
	free := t.turns.ended == t.place
	t.turns.mu.Unlock()
	if free {
		t.begun = true
		t.turns.record.Started(t.run)
	}
}

// Come implements infer.Turn.
func (t *turn) Come() bool { return t.begun }

// Await implements infer.Turn.
func (t *turn) Await() {
	if t.begun {
		return
	}
	freed := t.turns.await(t.place)
	t.begun = true
	if freed.After(t.run.Times.Start) {
		t.run.Times = infer.Times{Start: freed}
	}
	t.turns.record.Started(t.run)
}

func (t *turns) await(place uint64) (freed time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.ended != place {
		t.moved.Wait()
	}
	return t.freed
}

// end lets the next batch begin.
func (t *turns) end(now time.Time) {
	t.mu.Lock()
	t.ended++
	t.freed = now
	t.mu.Unlock()
	t.moved.Broadcast()
}
