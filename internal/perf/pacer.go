package perf

import (
	"context"

	"shoal/internal/load"
)

// startOpen hands out requests when they are due, from now on. Workers get their
// goroutines when they are first needed. The crew closes the alarm.
func (c *crew) startOpen(ctx context.Context, s schedule, alarm alarm) {
	if c.sequences != nil {
		for range c.sequences.rules.Count {
			c.slots = append(c.slots, c.sequences.begin())
		}
	}
	c.wg.Go(func() {
		defer c.dismiss()
		defer alarm.close()
		c.pace(ctx, s, alarm)
		c.closeSequences()
	})
	// A pacer that sleeps must hear of the end.
	stop := context.AfterFunc(ctx, c.stop)
	c.wg.Go(func() {
		<-c.stopping
		alarm.wake()
		stop()
	})
	go c.finish()
}

// pace waits for each request's time and gives it to a worker. When all are busy
// it waits for one: the request is late, and its latency says so.
func (c *crew) pace(ctx context.Context, s schedule, alarm alarm) {
	due := load.Now()
	for c.more(ctx) {
		if wait := due - load.Now(); wait > 0 {
			alarm.sleep(wait)
			select {
			case <-c.stopping:
				return
			default:
			}
		}
		w := c.recruit(ctx)
		if w == nil {
			return
		}
		j := job{due: due}
		if c.sequences == nil {
			j.message = c.message()
		} else if !c.assign(&j) {
			return
		}
		w.jobs <- j
		due += s.next()
	}
	c.stop() // the limit is reached
}

// recruit returns a worker that is idle; nil when the crew stops first.
func (c *crew) recruit(ctx context.Context) *worker {
	for {
		c.mu.Lock()
		w := c.pickLocked(ctx)
		c.mu.Unlock()
		if w != nil {
			return w
		}
		select {
		case <-c.freed:
		case <-c.stopping:
			return nil
		}
	}
}

func (c *crew) pickLocked(ctx context.Context) *worker {
	var w *worker
	switch n := len(c.idle); {
	case n > 0:
		w = c.idle[n-1]
		c.idle = c.idle[:n-1]
	case c.running < len(c.workers):
		w = c.workers[c.running]
		c.running++
		w.jobs = make(chan job, 1)
		c.wg.Go(func() { c.serve(ctx, w) })
	default:
		c.overload = true
		return nil
	}
	c.busy++
	c.maxBusy = max(c.maxBusy, c.busy)
	return w
}

// serve makes the requests that a worker is given.
func (c *crew) serve(ctx context.Context, w *worker) {
	for j := range w.jobs {
		c.send(ctx, w, &j)
		c.mu.Lock()
		c.busy--
		c.idle = append(c.idle, w)
		c.mu.Unlock()
		select {
		case c.freed <- struct{}{}:
		default:
		}
	}
}

// send makes the request of a job.
func (c *crew) send(ctx context.Context, w *worker, j *job) {
	m := c.messages[j.message]
	if j.closing {
		_ = w.conn.Do(ctx, m, &load.Exchange{Sequence: j.at}) // there is nobody left to tell
		return
	}
	w.x.Sequence = j.at
	err := w.do(ctx, m, j.message, j.due) // noted there
	if j.sequence != nil {
		c.landed(j.sequence, err)
	}
}

// dismiss ends the workers after what they have under way.
func (c *crew) dismiss() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers[:c.running] {
		close(w.jobs)
	}
}

// crowd returns the most requests that were under way at once since it was last
// asked, and whether a request had to wait for a worker.
func (c *crew) crowd() (most int, overload bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most, overload = c.maxBusy, c.overload
	c.maxBusy, c.overload = c.busy, false
	return most, overload
}
