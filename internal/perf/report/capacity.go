package report

import (
	"fmt"

	"shoal/internal/perf/result"
)

// Probe prints the result of a probe.
func (r *Report) Probe(p result.Probe) {
	verdict, kind := "misses", "probe"
	if p.Passed {
		verdict = "meets"
	}
	if p.Long {
		kind = "confirm"
	}
	fmt.Fprintf(r.Out, "| %s: %s requests/s %s the goal (", kind, result.Number(p.Rate), verdict)
	for _, g := range p.Results {
		fmt.Fprintf(r.Out, "%s: %s; ", g.Goal, g.Shown)
	}
	if p.Why != "" {
		fmt.Fprintf(r.Out, "%s; ", p.Why)
	}
	fmt.Fprintf(r.Out, "%.1f s)\n", p.Took.Seconds())
}

// capacity prints the result of a search.
func (r *Report) capacity(c *result.Capacity) {
	if c == nil {
		return
	}
	if c.Rate > 0 {
		limit := "no higher rate was tried"
		if missed := c.Missed(); missed > 0 {
			limit = result.Number(missed) + " missed it"
		}
		fmt.Fprintf(r.Out, "| capacity: %s requests/s with %s; %s\n", result.Number(c.Rate), c.Goal, limit)
		return
	}
	best := 0.0
	for _, p := range c.Probes {
		if p.Passed {
			best = max(best, p.Rate)
		}
	}
	fmt.Fprintf(r.Out, "| capacity: not found; the highest probe that met %s had %s requests/s\n", c.Goal, result.Number(best))
}
