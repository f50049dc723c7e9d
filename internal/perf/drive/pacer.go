package drive

import (
	"context"

	"shoal/internal/load"
)

// StartOpen gives out requests when they are due, from now on. Callers get
// their goroutines when they are first needed. The generator closes the alarm.
func (g *Generator) StartOpen(ctx context.Context, s Schedule, alarm Alarm) {
	if g.Sequences != nil {
		for range g.Sequences.rules.Count {
			g.slots = append(g.slots, g.Sequences.begin())
		}
	}
	g.wg.Go(func() {
		defer g.endCallers()
		defer alarm.close()
		g.pace(ctx, s, alarm)
		g.closeSequences()
	})
	// Wake the pacer when the run ends.
	stop := context.AfterFunc(ctx, g.Stop)
	g.wg.Go(func() {
		<-g.stopping
		alarm.wake()
		stop()
	})
	go g.finish()
}

// pace waits for each request's time and gives it to a caller. When all are busy
// it waits for one: the request is late, and its latency says so.
func (g *Generator) pace(ctx context.Context, s Schedule, alarm Alarm) {
	due := load.Now()
	for g.another(ctx) {
		if wait := due - load.Now(); wait > 0 {
			alarm.sleep(wait)
			select {
			case <-g.stopping:
				return
			default:
			}
		}
		c := g.waitIdle(ctx)
		if c == nil {
			return
		}
		j := job{due: due}
		if g.Sequences == nil {
			j.message = g.message()
		} else if !g.assign(&j) {
			return
		}
		c.jobs <- j
		due += s.next()
	}
	g.Stop() // the limit is reached
}

// waitIdle returns a caller that is idle; nil when the generator stops first.
func (g *Generator) waitIdle(ctx context.Context) *Caller {
	for {
		g.mu.Lock()
		c := g.pickLocked(ctx)
		g.mu.Unlock()
		if c != nil {
			return c
		}
		select {
		case <-g.freed:
		case <-g.stopping:
			return nil
		}
	}
}

func (g *Generator) pickLocked(ctx context.Context) *Caller {
	var c *Caller
	switch n := len(g.idle); {
	case n > 0:
		c = g.idle[n-1]
		g.idle = g.idle[:n-1]
	case g.running < len(g.Callers):
		c = g.Callers[g.running]
		g.running++
		c.jobs = make(chan job, 1)
		g.wg.Go(func() { g.serve(ctx, c) })
	default:
		return nil
	}
	g.busy++
	g.peak = max(g.peak, g.busy)
	return c
}

// serve makes the requests that a caller is given.
func (g *Generator) serve(ctx context.Context, c *Caller) {
	for j := range c.jobs {
		g.send(ctx, c, &j)
		g.mu.Lock()
		g.busy--
		g.idle = append(g.idle, c)
		g.mu.Unlock()
		select {
		case g.freed <- struct{}{}:
		default:
		}
	}
}

// send makes the request of a job.
func (g *Generator) send(ctx context.Context, c *Caller, j *job) {
	m := g.Messages[j.message]
	if j.closing {
		_ = c.conn.Do(ctx, m, &load.Exchange{Sequence: j.at}) // nobody is left to tell
		return
	}
	c.x.Sequence = j.at
	err := c.do(ctx, m, j.message, j.due) // do records it
	if j.sequence != nil {
		g.answered(j.sequence, err)
	}
}

// endCallers ends the callers after their requests in flight.
func (g *Generator) endCallers() {
	g.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.Callers[:g.running] {
		close(c.jobs)
	}
}
