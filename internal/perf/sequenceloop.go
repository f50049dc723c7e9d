package perf

import (
	"context"

	"shoal/internal/load"
)

// loopSequences lets a worker send one sequence after the other until the crew is
// stopped, and then end the one that it has under way.
func (c *crew) loopSequences(ctx context.Context, w *worker) {
	q := c.sequences
	s := q.begin()
	defer func() {
		if s.open() {
			c.closeSequence(ctx, w, s)
		}
		q.end(s)
	}()
	pause := minPause
	for c.more(ctx) {
		message, at := s.step()
		w.x.Sequence = at
		err := w.do(ctx, c.messages[message], message, 0)
		s.broken = err != nil
		if s.over() {
			q.end(s)
			s = q.begin()
		}
		if err == nil {
			pause = minPause
			continue
		}
		if !c.sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// closeSequence sends the request that ends a sequence. It is not measured: the
// server must only not be left waiting.
func (c *crew) closeSequence(ctx context.Context, w *worker, s *sequence) {
	message, at := s.close()
	_ = w.conn.Do(ctx, c.messages[message], &load.Exchange{Sequence: at}) // there is nobody left to tell
}

// assign gives a job of an open loop to the next sequence that may send. It
// returns false when the crew stops first.
func (c *crew) assign(j *job) bool {
	for {
		if c.tryAssign(j) {
			return true
		}
		select {
		case <-c.freed:
		case <-c.stopping:
			return false
		}
	}
}

func (c *crew) tryAssign(j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range c.slots {
		i := c.turn
		c.turn = (c.turn + 1) % len(c.slots)
		s := c.slots[i]
		if s.over() {
			if s.flying > 0 {
				continue
			}
			c.sequences.end(s)
			s = c.sequences.begin()
			c.slots[i] = s
		}
		if !s.ready(c.sequences.rules.Serial) {
			continue
		}
		j.sequence = s
		j.message, j.at = s.step()
		s.flying++
		return true
	}
	return false
}

// landed notes that a request of a sequence was answered, or failed.
func (c *crew) landed(s *sequence, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.flying--
	s.broken = s.broken || err != nil
}

// closeSequences ends the sequences that an open loop leaves, once their last
// requests are answered.
func (c *crew) closeSequences() {
	for _, s := range c.slots {
		for {
			w, open := c.closer(s)
			if w != nil {
				message, at := s.close()
				w.jobs <- job{message: message, at: at, closing: true}
			}
			if w != nil || !open {
				break
			}
			<-c.freed // a worker ended a request: its connection is closed if need be
		}
		c.sequences.end(s)
	}
}

// closer returns a worker that may end a sequence; nil when there is none yet, or
// nothing to end.
func (c *crew) closer(s *sequence) (w *worker, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.flying > 0 {
		return nil, true
	}
	if !s.open() {
		return nil, false
	}
	n := len(c.idle)
	if n == 0 {
		return nil, c.busy > 0
	}
	w = c.idle[n-1]
	c.idle = c.idle[:n-1]
	c.busy++
	return w, true
}
