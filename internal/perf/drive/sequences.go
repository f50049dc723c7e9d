package drive

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"shoal/internal/client"
)

// Sequences says how requests become sequences, for models that need them.
type Sequences struct {
	// Length is the mean number of requests of a sequence, varied by the share
	// Variation; 0 means the number of steps in its stream of data.
	Length    int
	Variation float64
	// First and End bound the ids: End is exclusive, 0 means no end.
	First, End uint64
	// Count is how many are active at once in an open loop; a closed loop has
	// one per caller.
	Count int
	// Serial lets an open loop have one request of a sequence in flight at a
	// time. Otherwise only the first request is waited for, and the last waits
	// for all others.
	Serial bool
}

// Check checks the settings, given the most sequences that are active at once.
func (s *Sequences) Check(most int) error {
	switch {
	case s.First == 0:
		return errors.New("--sequence-id-range starts at 0, which means no sequence; want 1 or more")
	case s.End != 0 && s.End <= s.First:
		return fmt.Errorf("--sequence-id-range %d:%d has no ids; its end is not one of them", s.First, s.End)
	case s.End != 0 && s.End-s.First < uint64(most):
		return fmt.Errorf("--sequence-id-range %d:%d has %d ids, but %d sequences are under way at once", s.First, s.End, s.End-s.First, most)
	}
	return nil
}

// A Stream is messages that follow each other.
type Stream struct{ First, Steps int }

// A Sequencer makes sequences. It is used by many goroutines.
type Sequencer struct {
	rules   Sequences
	streams []Stream

	mu      sync.Mutex // protects the fields below
	rng     *rand.Rand
	counter uint64
	live    map[uint64]bool
	next    int // the stream of the next one
}

// NewSequencer returns a Sequencer for these streams and rules.
func NewSequencer(rules Sequences, streams []Stream, seed uint64) *Sequencer {
	return &Sequencer{rules: rules, streams: streams, rng: rand.New(rand.NewPCG(seed, 0x5e9)), live: make(map[uint64]bool)}
}

// A sequence is requests with one id. Its owner guards it.
type sequence struct {
	stream   Stream
	id       uint64
	length   int
	sent     int
	inFlight int  // requests under way; open loops
	broken   bool // a request failed, so the server may have forgotten it
}

// begin makes a new sequence. Its id is free.
func (q *Sequencer) begin() *sequence {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &sequence{stream: q.streams[q.next]}
	q.next = (q.next + 1) % len(q.streams)
	for s.id = q.idLocked(); q.live[s.id]; s.id = q.idLocked() {
	}
	q.live[s.id] = true
	s.length = q.lengthLocked(s.stream)
	return s
}

func (q *Sequencer) idLocked() uint64 {
	n := q.counter
	q.counter++
	if q.rules.End == 0 {
		return q.rules.First + n
	}
	return q.rules.First + n%(q.rules.End-q.rules.First)
}

func (q *Sequencer) lengthLocked(s Stream) int {
	mean := q.rules.Length
	if mean == 0 {
		return s.Steps
	}
	by := (2*q.rng.Float64() - 1) * q.rules.Variation * float64(mean)
	return max(1, int(math.Round(float64(mean)+by)))
}

// end frees the id of a sequence.
func (q *Sequencer) end(s *sequence) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.live, s.id)
}

// step returns the next request of the sequence: its message and its place.
func (s *sequence) step() (message int, at client.Sequence) {
	at = client.Sequence{ID: s.id, Start: s.sent == 0, End: s.sent == s.length-1}
	message = s.stream.First + s.sent%s.stream.Steps
	s.sent++
	return message, at
}

// open says that the server waits for more of the sequence.
func (s *sequence) open() bool { return s.sent > 0 && s.sent < s.length && !s.broken }

// close returns the request that ends an open sequence.
func (s *sequence) close() (message int, at client.Sequence) {
	s.length = s.sent + 1
	return s.step()
}

// ready says whether the next request may be sent while others are under way.
func (s *sequence) ready(serial bool) bool {
	if s.inFlight == 0 {
		return true
	}
	last := s.sent >= s.length-1
	return !serial && !last && !s.broken && s.sent > 1
}

// over says that no more requests of it are to be sent.
func (s *sequence) over() bool { return s.sent >= s.length || s.broken }
