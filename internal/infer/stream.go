package infer

import (
	"sync"
	"time"

	"shoal/internal/inflight"
	"shoal/internal/status"
)

// A Stream has the responses of a decoupled model to one request: any number of
// them, then the end. The engine makes one for each request to such a model;
// requests to other models have none.
//
// An instance takes the Stream from the request during Run. It may use it, from
// any goroutine and also after Run has returned, until it has called Finish. By
// then the request itself no longer belongs to the instance: what later
// responses need must be copied. Every stream must be finished, also when its
// client is gone.
//
// Responses wait in the stream for the client, in the order in which they were
// sent. Only Wait and WaitWhileRead block.
type Stream struct {
	limit  int64
	budget *inflight.Budget // that waiting responses count against
	record func(Delivery)
	gone   chan struct{} // closed when the client wants no more
	wake   chan struct{} // buffered 1: the queue or the state changed, for Next

	mu       sync.Mutex // protects the fields below
	queue    []queued
	bytes    int64
	room     chan struct{} // closed when bytes fell below the mark; nil when nobody waits
	waited   bool          // a sender has used WaitWhileRead
	left     time.Duration // how much of its patience is left
	earned   time.Duration // what the client has earned back since
	index    int           // of the next response
	from     time.Time     // when work on the next response began
	finished bool          // the sender is done
	why      error         // why the client wants no more; gone is closed
	goneAt   time.Time
}

// A queued is one response that waits for the client, or the stream's end.
type queued struct {
	resp  *Response // nil when there is only the end
	final bool
	err   error // why the request failed, at the end
	size  int64
}

// A ResponseOutcome is the outcome of one response of a stream.
type ResponseOutcome uint8

// The outcomes.
const (
	ResponseSuccess ResponseOutcome = iota
	ResponseFail                    // an error was sent
	ResponseEmpty                   // the model had nothing to send
	ResponseCancel                  // the model stopped because the client is gone
)

// A Delivery is the record of one response of a stream, for statistics.
type Delivery struct {
	Index   int // by position in the request's responses
	Outcome ResponseOutcome
	Start   time.Time // work on it began
	Output  time.Time // its outputs began to be made; zero when there were none
	End     time.Time
}

// NewStream returns a stream for one request, in which responses of at most
// limit bytes wait for the client. It reports each response to record, which
// must not block.
func NewStream(limit int64, record func(Delivery)) *Stream {
	return &Stream{limit: limit, record: record, gone: make(chan struct{}), wake: make(chan struct{}, 1), from: time.Now()}
}

// Within also counts waiting responses against b. Call it before the stream is
// used.
func (s *Stream) Within(b *inflight.Budget) { s.budget = b }

// Begin marks the time at which work on the next response began. Otherwise that
// is when the previous one was sent.
func (s *Stream) Begin() {
	now := time.Now()
	s.mu.Lock()
	s.from = now
	s.mu.Unlock()
}

// Send gives the client a response, which the stream then owns: it is released
// once it is encoded, or at once when it cannot be sent. A response with Err
// set sends an error to the client; more may follow it. With final it is the
// last, and Finish need not be called.
//
// Send fails when the stream is finished, when the client wants no more, or
// when the responses that wait for a slow client exceed the limit, which ends
// the stream. A sender that can wait calls Wait first.
func (s *Stream) Send(resp *Response, final bool) error {
	now := time.Now()
	size := resp.size()
	s.mu.Lock()
	if s.finished {
		s.mu.Unlock()
		resp.Release()
		return errFinished
	}
	outcome := ResponseSuccess
	if resp.Err != nil {
		outcome = ResponseFail
	}
	d := s.deliver(outcome, resp.OutputStart, now)
	s.finished = final
	err := s.why
	switch {
	case err != nil:
	case s.bytes > 0 && s.bytes+size > s.limit:
		err = status.Errorf(status.Unavailable,
			"%d bytes of responses wait for a client that reads too slowly, the limit is %d: read faster, send less, or raise --response-queue-size", s.bytes+size, s.limit)
		s.failLocked(err)
	case !s.budget.Try(size, s.held()):
		err = s.budget.ErrFull(size)
		s.failLocked(err)
	default:
		s.push(queued{resp: resp, final: final, size: size})
	}
	s.mu.Unlock()
	if err != nil {
		resp.Release()
	}
	s.record(d)
	return err
}

// held returns how much the stream counts as holding for its next response.
// Only the first waiting response may use the memory reserved for small
// requests: there may be many others.
func (s *Stream) held() int64 {
	if s.bytes == 0 {
		return 0
	}
	return inflight.Small
}

// failLocked ends the stream with an error.
func (s *Stream) failLocked(err error) {
	s.push(queued{final: true, err: err})
	s.finished = true
	s.giveUp(err)
}

// Skip records that the model has no response where one could have been. The
// client is not told.
func (s *Stream) Skip() {
	s.mu.Lock()
	d := s.deliver(ResponseEmpty, time.Time{}, time.Now())
	s.mu.Unlock()
	s.record(d)
}

// Finish ends the stream. An error fails the request and is the last thing that
// the client gets. A sender that stops because the client is gone passes the
// error of Wait or Send, or any other error with the code Cancelled. Finish may
// be called again, without effect.
func (s *Stream) Finish(err error) {
	now := time.Now()
	s.mu.Lock()
	if s.finished {
		s.mu.Unlock()
		return
	}
	s.finished = true
	var d Delivery
	if err != nil {
		d = s.failed(err, now)
	}
	if s.why == nil {
		s.push(queued{final: true, err: err})
	}
	s.mu.Unlock()
	if err != nil {
		s.record(d)
	}
}

// failed counts the error that ends the stream. Time that a sender spends after
// the client is gone is counted separately.
func (s *Stream) failed(err error, now time.Time) Delivery {
	if s.why == nil || status.CodeOf(err) != status.Cancelled {
		return s.deliver(ResponseFail, now, now)
	}
	if s.from.Before(s.goneAt) {
		s.from = s.goneAt
	}
	return s.deliver(ResponseCancel, time.Time{}, now)
}

// deliver counts a response and returns its record.
func (s *Stream) deliver(o ResponseOutcome, output, now time.Time) Delivery {
	if output.IsZero() && (o == ResponseSuccess || o == ResponseFail) {
		output = now
	}
	d := Delivery{Index: s.index, Outcome: o, Start: s.from, Output: output, End: now}
	s.index++
	s.from = now
	return d
}

// push adds to the queue and wakes Next.
func (s *Stream) push(q queued) {
	s.queue = append(s.queue, q)
	s.bytes += q.size
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Wait returns when there is room for another response. It fails when the
// client wants no more.
func (s *Stream) Wait() error {
	for {
		room, err := s.look()
		if room == nil || err != nil {
			return err
		}
		select {
		case <-room:
		case <-s.gone:
		}
	}
}

// WaitWhileRead is Wait for a sender that other requests wait for: all its
// waits together last at most patience, of which the client earns back a second
// with each megabyte that it reads. After that it returns at once, and a
// further Send may end the stream.
func (s *Stream) WaitWhileRead(patience time.Duration) error {
	for {
		room, err := s.look()
		if room == nil || err != nil {
			return err
		}
		left := s.patience(patience)
		if left <= 0 {
			return nil
		}
		begin := time.Now()
		timer := time.NewTimer(left)
		select {
		case <-room:
		case <-s.gone:
		case <-timer.C:
		}
		timer.Stop()
		s.mu.Lock()
		s.left -= time.Since(begin)
		s.mu.Unlock()
	}
}

// patience returns how long a sender may still wait for the client; most is its
// initial patience.
func (s *Stream) patience(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waited {
		s.waited, s.left = true, most
	}
	s.left = min(s.left+s.earned, most)
	s.earned = 0
	return s.left
}

// earn returns the patience that a client earns by reading n bytes.
func earn(n int64) time.Duration { return time.Duration(n) * time.Second >> 20 }

// look returns a channel that is closed when there is room, nil when there is
// room now. It fails when the client wants no more.
func (s *Stream) look() (room <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil || s.bytes <= s.limit/waitPart {
		return nil, s.why
	}
	if s.room == nil {
		s.room = make(chan struct{})
	}
	return s.room, nil
}

// A sender that waits uses only one waitPart-th of the stream's limit. The rest
// is for responses that turn out large.
const waitPart = 16

// Cancelled reports whether the client wants no more.
func (s *Stream) Cancelled() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed when the client wants no more.
func (s *Stream) Done() <-chan struct{} { return s.gone }

var errFinished = status.Errorf(status.Internal, "the model sent a response after the final one")
