package drive

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf/result"
)

// A Record is one answered request. Times are as load.Now returns them.
type Record struct {
	Due                      time.Duration // when it should have been sent
	Start, Sent, First, Done time.Duration
	Responses                int
	Message                  int  // which of the messages
	Ended                    bool // it was the last of a sequence
}

// A Failure is one failed request.
type Failure struct {
	Cause string
	Fault bool // the request itself is wrong: others like it will fail too
	Fatal bool // the run cannot go on
}

// Seen is what a caller has recorded since the last Take.
type Seen struct {
	Records  []Record
	Idle     time.Duration // how long it had no request in flight
	Failures []Failure
	Kept     []result.Exchange
}

// A Caller has one connection and makes one request at a time over it. Its
// records wait in it until Take: a lock that is nearly always free is cheaper
// than shared memory.
type Caller struct {
	conn  load.Conn
	keep  bool                                   // keep requests and answers
	check func(message int, answer []byte) error // nil: any answer is good
	jobs  chan job                               // open loop: what to send next
	x     load.Exchange
	since time.Duration // when its last answer came

	mu   sync.Mutex // protects seen
	seen Seen
}

// A job is a request of an open loop.
type job struct {
	message int
	due     time.Duration

	at       client.Sequence
	sequence *sequence // that it is part of; nil: none
	closing  bool      // it only ends a sequence, and is not measured
}

// do makes one request and records the outcome.
func (c *Caller) do(ctx context.Context, m *load.Message, index int, due time.Duration) error {
	err := c.conn.Do(ctx, m, &c.x)
	x := &c.x
	unexpected := false
	if err == nil && c.check != nil {
		err = c.check(index, x.Answer)
		unexpected = err != nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since != 0 {
		c.seen.Idle += x.Start - c.since
	}
	c.since = x.Done
	if unexpected {
		c.seen.Failures = append(c.seen.Failures, Failure{err.Error(), true, true})
		return err
	}
	if err != nil {
		cause, fault := causeOf(err)
		c.seen.Failures = append(c.seen.Failures, Failure{cause, fault, false})
		return err
	}
	if due == 0 {
		due = x.Start
	}
	c.seen.Records = append(c.seen.Records, Record{due, x.Start, x.Sent, x.First, x.Done, max(1, len(x.Arrivals)), index, x.Sequence.End})
	if c.keep {
		c.seen.Kept = append(c.seen.Kept, result.Exchange{Message: index, Sequence: x.Sequence.ID, At: x.Start, Arrivals: answerTimes(x), Answer: slices.Clone(x.Answer)})
	}
	return nil
}

// answerTimes returns when the answers of an exchange came.
func answerTimes(x *load.Exchange) []time.Duration {
	if len(x.Arrivals) > 0 {
		return slices.Clone(x.Arrivals)
	}
	return []time.Duration{x.Done}
}

// Take returns what the caller has recorded since the last Take.
func (c *Caller) Take() Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	// The same capacity again: the next period will be similar.
	c.seen = Seen{Records: make([]Record, 0, len(seen.Records))}
	return seen
}

// PollIdle polls the caller's connection while it is idle.
func (c *Caller) PollIdle() { c.conn.PollIdle() }

// causeOf returns the text under which an error is counted, the server's own if
// there is one, and whether the request is at fault.
func causeOf(err error) (cause string, fault bool) {
	var answer *load.StatusError
	if errors.As(err, &answer) {
		return load.Kind(err) + ": " + client.ErrorText(answer.Code, answer.Body), answer.Code/100 == 4 && answer.Code != 429
	}
	if s, ok := status.FromError(err); ok {
		switch s.Code() {
		case codes.InvalidArgument, codes.NotFound, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
			fault = true
		}
		return load.Kind(err) + ": " + s.Message(), fault
	}
	return load.Kind(err) + ": " + err.Error(), false
}
