package main

import (
	"context"
	"fmt"
	"os"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
	"shoal/internal/load"
)

// A pair is both tools, one after the other.
type pair struct {
	Ours   run `json:"shoal_perf"`
	Theirs run `json:"perf_analyzer"`
}

// A comparison is both tools on the same server, in rounds.
type comparison struct {
	Server   string `json:"server"`
	Model    string `json:"model"`
	Protocol string `json:"protocol"`
	Callers  int    `json:"callers"`
	Rounds   []pair `json:"rounds"`
}

// fewerRounds is by what the rounds of a comparison of CPU alone are divided: it
// hardly differs from round to round.
const fewerRounds = 2

// compare runs both tools in turn, on each model.
func (r *results) compare(ctx context.Context, o options, s *peer.Server) error {
	for _, protocol := range []string{"http", "grpc"} {
		address := s.HTTP
		if protocol == "grpc" {
			address = s.GRPC
		}
		for _, on := range []struct {
			model           string
			callers, rounds int
		}{
			{slowName, 1, o.rounds},
			{slowName, slowInstances, o.rounds},
			{slowName, cpuCallers, o.rounds},
			{peer.Small.Name, cpuCallers, (o.rounds + fewerRounds - 1) / fewerRounds},
		} {
			args := append(windows(o.window), "-m", on.model, "-i", protocol, "-u", address, "--concurrency-range", fmt.Sprint(on.callers))
			c := comparison{Server: s.Name, Model: on.model, Protocol: protocol, Callers: on.callers}
			for i := range on.rounds {
				p, err := both(ctx, o, i%2 == 1, on.model == slowName, args)
				if err != nil {
					return err
				}
				c.Rounds = append(c.Rounds, p)
				fmt.Fprintf(os.Stderr, "%s %s %s c=%d: shoal perf %.0f/s p50 %.0f us CPU %.1f us, perf_analyzer %.0f/s p50 %.0f us CPU %.1f us\n",
					s.Name, on.model, protocol, on.callers, p.Ours.Throughput, p.Ours.P50, p.Ours.CPU, p.Theirs.Throughput, p.Theirs.P50, p.Theirs.CPU)
			}
			r.judge(c)
		}
	}
	return nil
}

// both runs one tool and then the other. The order alternates from round to round,
// so that a machine that gets slower does not favour one.
func both(ctx context.Context, o options, theirsFirst, export bool, args []string) (p pair, err error) {
	first := func() error { p.Ours, err = ours(ctx, o, nil, nil, args...); return err }
	second := func() error { p.Theirs, err = theirs(ctx, o, export, args...); return err }
	if theirsFirst {
		first, second = second, first
	}
	if err := first(); err != nil {
		return p, err
	}
	return p, second()
}

// each returns a figure of one tool, round by round.
func (c *comparison) each(tool func(pair) run, get func(run) float64) []float64 {
	var list []float64
	for _, p := range c.Rounds {
		list = append(list, get(tool(p)))
	}
	return list
}

func ourRun(p pair) run   { return p.Ours }
func theirRun(p pair) run { return p.Theirs }

// ratio returns the median of the rounds' own ratios of a figure, ours by theirs,
// with its interval.
func (c *comparison) ratio(get func(run) float64) (value, low, high float64) {
	var ratios []float64
	for _, p := range c.Rounds {
		ratios = append(ratios, get(p.Ours)/get(p.Theirs))
	}
	low, high = report.Interval(len(ratios), func(rounds []int) float64 { return report.Median(report.Pick(ratios, rounds)) })
	return report.Median(ratios), low, high
}

// tail returns the ratio of a percentile of all rounds together, with its interval:
// a single round has too few requests beyond it.
func (c *comparison) tail(q float64) (value, low, high float64) {
	of := func(rounds []int) float64 {
		return float64(c.merged(ourRun, rounds).Quantile(q)) / float64(c.merged(theirRun, rounds).Quantile(q))
	}
	low, high = report.Interval(len(c.Rounds), of)
	return of(c.all()), low, high
}

// merged returns the latencies of some rounds together.
func (c *comparison) merged(tool func(pair) run, rounds []int) *load.Histogram {
	h := &load.Histogram{}
	for _, i := range rounds {
		h.Merge(tool(c.Rounds[i]).latency)
	}
	return h
}

func (c *comparison) all() []int {
	var all []int
	for i := range c.Rounds {
		all = append(all, i)
	}
	return all
}

// summed returns what a tool came to over all rounds: medians, and the tail of all
// requests together where both tools tell them.
func (c *comparison) summed(tool func(pair) run) run {
	of := func(get func(run) float64) float64 { return report.Median(c.each(tool, get)) }
	v := run{
		Throughput: of(throughput), P50: of(p50), P95: of(p95), P99: of(p99), CPU: of(cpu),
		Requests: of(func(v run) float64 { return v.Requests }), RSSMB: of(func(v run) float64 { return v.RSSMB }),
	}
	if c.Rounds[0].Theirs.latency != nil {
		h := c.merged(tool, c.all())
		v.P95, v.P99 = float64(h.Quantile(0.95))/1e3, float64(h.Quantile(0.99))/1e3
	}
	return v
}

// The figures of a run.
func throughput(v run) float64 { return v.Throughput }
func p50(v run) float64        { return v.P50 }
func p95(v run) float64        { return v.P95 }
func p99(v run) float64        { return v.P99 }
func cpu(v run) float64        { return v.CPU }
