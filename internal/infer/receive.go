package infer

import (
	"context"
	"time"
)

// Cancel tells the sender that the receiver wants no more, and why, and
// releases waiting responses. Only the stream's receiver may call it.
func (s *Stream) Cancel(why error) {
	s.mu.Lock()
	s.giveUp(why)
	dropped := s.queue
	s.budget.Release(s.bytes)
	s.queue, s.bytes = nil, 0
	s.mu.Unlock()
	for _, q := range dropped {
		if q.resp != nil {
			q.resp.Release()
		}
	}
}

func (s *Stream) giveUp(why error) {
	if s.why == nil {
		s.why, s.goneAt = why, time.Now()
		close(s.gone)
	}
}

// Next returns the next response, which the caller must release, and whether it
// is the last; the last may be nil. It fails when the request failed or ctx
// ends. Only the stream's receiver may call it.
func (s *Stream) Next(ctx context.Context) (resp *Response, final bool, err error) {
	for {
		if q, ok := s.pop(); ok {
			return q.resp, q.final, q.err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

func (s *Stream) pop() (queued, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return queued{}, false
	}
	q := s.queue[0]
	s.queue[0] = queued{}
	s.queue = s.queue[1:]
	s.bytes -= q.size
	s.budget.Release(q.size)
	s.earned += earn(q.size)
	if s.room != nil && s.bytes <= s.limit/waitPart {
		close(s.room)
		s.room = nil
	}
	return q, true
}
