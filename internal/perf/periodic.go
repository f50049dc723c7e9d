package perf

import (
	"context"
	"fmt"
)

// A PeriodicLoad grows: it starts with some requests and adds more each time that
// all of the last ones have seen Every answers. Each caller makes one request.
type PeriodicLoad struct {
	Start, End, Step int
	Every            int
}

// check holds the numbers against each other.
func (p PeriodicLoad) check() error {
	switch {
	case p.Every < 1:
		return fmt.Errorf("--request-period is %d, want 1 or more", p.Every)
	case p.Start < 1 || p.End < p.Start || p.Step < 1:
		return fmt.Errorf("--periodic-concurrency-range %d:%d:%d must start at 1 or more, end no lower and have a step", p.Start, p.End, p.Step)
	case (p.End-p.Start)%p.Step != 0:
		return fmt.Errorf("--periodic-concurrency-range %d:%d:%d: the step must lead from the start to the end", p.Start, p.End, p.Step)
	}
	return nil
}

// startPeriodic begins the groups of a load that grows.
func (c *crew) startPeriodic(ctx context.Context, p PeriodicLoad) {
	c.wg.Go(func() {
		for from, n := 0, p.Start; from < len(c.workers); from, n = from+n, p.Step {
			if !c.runGroup(ctx, c.workers[from:from+n], p.Every) {
				return
			}
		}
	})
	go c.finish()
}

// runGroup lets each worker make one request, and returns when all have seen
// enough answers, or all that there are. It returns false when the crew stops
// first.
func (c *crew) runGroup(ctx context.Context, group []*worker, enough int) bool {
	ready := make(chan struct{}, len(group))
	for _, w := range group {
		if !c.more(ctx) {
			return false
		}
		i := c.message()
		c.wg.Go(func() {
			seen := 0
			w.x.Arrived = func() {
				if seen++; seen == enough {
					ready <- struct{}{}
				}
			}
			_ = w.do(ctx, c.messages[i], i, 0) // noted there
			if seen < enough {
				ready <- struct{}{}
			}
		})
	}
	for range group {
		select {
		case <-ready:
		case <-c.stopping:
			return false
		}
	}
	return true
}
