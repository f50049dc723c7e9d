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

// A Record is one answered request. Times are as load.Now says them.
type Record struct {
	Due                      time.Duration // when it should have been sent
	Start, Sent, First, Done time.Duration
	Responses                int
	Message                  int  // which of the messages
	Ended                    bool // it was the last of a sequence
}

// A Failure is one request that got no good answer.
type Failure struct {
	Cause string
	Fault bool // the request itself is wrong: others like it will fail as well
	Fatal bool // there is no point in going on
}

// Seen is what a caller has seen since it was last asked.
type Seen struct {
	Records  []Record
	Idle     time.Duration // how long it had nothing under way
	Failures []Failure
	Kept     []result.Exchange
}

// A Caller has one connection and makes one request at a time over it. What it
// saw waits in it until it is taken: a lock that is nearly always free is cheaper
// than anything shared.
type Caller struct {
	conn  load.Conn
	keep  bool                                   // what is sent and answered is wanted
	check func(message int, answer []byte) error // nil: any answer is good
	jobs  chan job                               // open loop: what to send next
	x     load.Exchange
	since time.Duration // of its last answer

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

// do makes one request and notes what came of it.
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

// Take returns what the caller has seen since it was last asked.
func (c *Caller) Take() Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	// As much room again: the next stretch will be like this one.
	c.seen = Seen{Records: make([]Record, 0, len(seen.Records))}
	return seen
}

// PollIdle looks after the caller's connection while it is idle.
func (c *Caller) PollIdle() { c.conn.PollIdle() }

// causeOf puts an error into words that are counted, the server's own where it
// has some, and says whether the request is at fault.
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
