package perf

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
)

// A record is one answered request. Times are as load.Now says them.
type record struct {
	due                      time.Duration // when it should have been sent
	start, sent, first, done time.Duration
	responses                int
	message                  int  // which of the messages
	ended                    bool // it was the last of a sequence
}

// A worker has one connection and makes one request at a time over it. What it
// saw waits in it until the meter takes it: a lock that is nearly always free is
// cheaper than anything shared.
type worker struct {
	conn  load.Conn
	keep  bool                                   // what is sent and answered is wanted
	check func(message int, answer []byte) error // nil: any answer is good
	jobs  chan job                               // open loop: what to send next
	x     load.Exchange
	since time.Duration // of its last answer

	mu      sync.Mutex // protects the fields below
	records []record
	idle    time.Duration // how long it had nothing under way
	failed  []failure
	export  []exported
}

// A failure is one request that got no good answer.
type failure struct {
	done  time.Duration
	cause string
	fault bool // the request itself is wrong: others like it will fail as well
	fatal bool // there is no point in going on
}

// A job is a request of an open loop.
type job struct {
	message int
	due     time.Duration

	at       load.Sequence
	sequence *sequence // that it is part of; nil: none
	closing  bool      // it only ends a sequence, and is not measured
}

// do makes one request and notes what came of it.
func (w *worker) do(ctx context.Context, m *load.Message, index int, due time.Duration) error {
	err := w.conn.Do(ctx, m, &w.x)
	x := &w.x
	if err == nil && w.check != nil {
		err = w.check(index, x.Answer)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since != 0 {
		w.idle += x.Start - w.since
	}
	w.since = x.Done
	if err != nil {
		cause, fault := causeOf(err)
		w.failed = append(w.failed, failure{x.Done, cause, fault, errors.Is(err, errUnexpected)})
		return err
	}
	if due == 0 {
		due = x.Start
	}
	responses := 1
	if n := len(x.Arrivals); n > 0 {
		responses = n
	}
	w.records = append(w.records, record{due, x.Start, x.Sent, x.First, x.Done, responses, index, x.Sequence.End})
	if w.keep {
		w.export = append(w.export, exported{message: index, sequence: x.Sequence.ID, at: x.Start, arrivals: answerTimes(x), answer: slices.Clone(x.Answer)})
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

// take returns what the worker has seen since it was last asked.
func (w *worker) take() (records []record, idle time.Duration, failed []failure, export []exported) {
	w.mu.Lock()
	defer w.mu.Unlock()
	records, idle, failed, export = w.records, w.idle, w.failed, w.export
	// As much room again: the next stretch will be like this one.
	w.records = make([]record, 0, len(records))
	w.idle, w.failed, w.export = 0, nil, nil
	return records, idle, failed, export
}

// causeOf puts an error into words that are counted, the server's own where it
// has some, and says whether the request is at fault.
func causeOf(err error) (cause string, fault bool) {
	var answer *load.StatusError
	if errors.As(err, &answer) {
		return load.Kind(err) + ": " + client.ErrorText(answer.Code, answer.Body), answer.Code/100 == 4 && answer.Code != 429
	}
	if errors.Is(err, errUnexpected) {
		return err.Error(), true
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
