package drive

import (
	"context"

	"shoal/internal/load"
)

// loopSequences lets a caller send one sequence after the other until the generator is
// stopped, and then end the one that it has under way.
func (g *Generator) loopSequences(ctx context.Context, c *Caller) {
	q := g.Sequences
	s := q.begin()
	defer func() {
		if s.open() {
			g.closeSequence(ctx, c, s)
		}
		q.end(s)
	}()
	pause := minPause
	for g.another(ctx) {
		message, at := s.step()
		c.x.Sequence = at
		err := c.do(ctx, g.Messages[message], message, 0)
		s.broken = err != nil
		if s.over() {
			q.end(s)
			s = q.begin()
		}
		if !g.backOff(ctx, err, &pause) {
			return
		}
	}
}

// closeSequence sends the request that ends a sequence, so that the server does
// not wait for it. It is not measured.
func (g *Generator) closeSequence(ctx context.Context, c *Caller, s *sequence) {
	message, at := s.close()
	_ = c.conn.Do(ctx, g.Messages[message], &load.Exchange{Sequence: at}) // there is nobody left to tell
}

// assign gives a job of an open loop to the next sequence that may send. It
// returns false when the generator stops first.
func (g *Generator) assign(j *job) bool {
	for {
		if g.tryAssign(j) {
			return true
		}
		select {
		case <-g.freed:
		case <-g.stopping:
			return false
		}
	}
}

func (g *Generator) tryAssign(j *job) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range g.slots {
		i := g.turn
		g.turn = (g.turn + 1) % len(g.slots)
		s := g.slots[i]
		if s.over() {
			if s.inFlight > 0 {
				continue
			}
			g.Sequences.end(s)
			s = g.Sequences.begin()
			g.slots[i] = s
		}
		if !s.ready(g.Sequences.rules.Serial) {
			continue
		}
		j.sequence = s
		j.message, j.at = s.step()
		s.inFlight++
		return true
	}
	return false
}

// answered records that a request of a sequence was answered, or failed.
func (g *Generator) answered(s *sequence, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.inFlight--
	s.broken = s.broken || err != nil
}

// closeSequences ends the open sequences of an open loop, once their last
// requests are answered.
func (g *Generator) closeSequences() {
	for _, s := range g.slots {
		for {
			c, open := g.closer(s)
			if c != nil {
				message, at := s.close()
				c.jobs <- job{message: message, at: at, closing: true}
			}
			if c != nil || !open {
				break
			}
			<-g.freed // a caller ended a request: its connection is closed if necessary
		}
		g.Sequences.end(s)
	}
}

// closer returns a caller that may end a sequence; nil when there is none yet, or
// nothing to end.
func (g *Generator) closer(s *sequence) (c *Caller, open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.inFlight > 0 {
		return nil, true
	}
	if !s.open() {
		return nil, false
	}
	n := len(g.idle)
	if n == 0 {
		return nil, g.busy > 0
	}
	c = g.idle[n-1]
	g.idle = g.idle[:n-1]
	g.busy++
	return c, true
}
