package drive

import (
	"context"
	"fmt"
)

// A PeriodicLoad grows: it starts with some requests and adds more whenever all
// of the latest ones have had Every answers. Each caller makes one request.
type PeriodicLoad struct {
	Start, End, Step int
	Every            int
}

// Check checks the numbers against each other.
func (p PeriodicLoad) Check() error {
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

// StartPeriodic starts the groups of a load that grows.
func (g *Generator) StartPeriodic(ctx context.Context, p PeriodicLoad) {
	g.wg.Go(func() {
		for from, n := 0, p.Start; from < len(g.Callers); from, n = from+n, p.Step {
			if !g.runGroup(ctx, g.Callers[from:from+n], p.Every) {
				return
			}
		}
	})
	go g.finish()
}

// runGroup lets each caller make one request, and returns when all have had
// enough answers, or all their answers. It returns false when the generator
// stops first.
func (g *Generator) runGroup(ctx context.Context, group []*Caller, enough int) bool {
	ready := make(chan struct{}, len(group))
	for _, c := range group {
		if !g.another(ctx) {
			return false
		}
		i := g.message()
		g.wg.Go(func() {
			seen := 0
			c.x.Arrived = func() {
				if seen++; seen == enough {
					ready <- struct{}{}
				}
			}
			_ = c.do(ctx, g.Messages[i], i, 0) // do records it
			if seen < enough {
				ready <- struct{}{}
			}
		})
	}
	for range group {
		select {
		case <-ready:
		case <-g.stopping:
			return false
		}
	}
	return true
}
