package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"shoal/internal/perf/perftest"
	"shoal/internal/perf/result"
)

// criteria returns the promises in their order.
func criteria() []criterion {
	return []criterion{
		{"P1", "the tutorials' commands run as written", commands},
		{"P2", "report lines, CSV header and JSON export are perf_analyzer's", layout},
		{"P3", "closed loop obeys Little's law within 2 % for 1, 4, 16, 64 callers of curve_mid", little},
		{"P4", "curve_flat, -b 2, 2:16:2: within 8 % of the alternating-groups law, knee at 8; server parts add up within 5 us", groups},
		{"P5", "client and server counts differ by at most concurrency + 0.5 %", counts},
		{"P6", "500/s with a pause of 1 s: by schedule p99 850-1050 ms and p95 400-700 ms; by send, 4 outstanding, p99 < 50 ms; both printed", stalled},
		{"P7", "open loop of noop at 200, 1000, 2000/s: rate within 0.5 %, median send lag <= 1.2 ms", paced},
		{"P8", "poisson: coefficient of variation of 10000 gaps 0.95 to 1.05", poisson},
		{"P9", "quantiles of 1 M values within 0.1 % of sorting; <= 60 ns and no allocation a record", histogram},
		{"P10", "noop, 12.8 KB body: >= 8000 infer/s on the shared machine; at 1000/s the client uses <= 20 % of a core", cheap},
		{"P11", "a view on a terminal changes the throughput of noop by at most 2 %", watched},
		{"P12", "the page of 1 M requests has at most 600 KB and refers to nothing outside", paged},
		{"P13", "flaky: completes, share 0.5-1.5 %, causes listed, exit 99; with --max-error-rate 5% exit 0", flaky},
		{"P14", "memory <= 100 MB for a run at 2000/s (--memory-time)", memory},
		{"P15", "one build: no difference in >= 18 of 20 pairs; 10 % slower: slower in >= 18 of 20", compare},
		{"P16", "--find-capacity p99<20ms on curve_mid: <= 40 s, within 5 % of a 1 % grid", capacity},
	}
}

// quick are windows that are short but long enough for figures of these models.
var quick = []string{"-p", "2000"}

func little(ctx context.Context, b *bench) (string, bool, error) {
	var figures []string
	ok := true
	for _, n := range []int{1, 4, 16, 64} {
		_, l, err := b.level(ctx, "curve_mid", append(quick, "--concurrency-range", strconv.Itoa(n), "--allow-unstable")...)
		if err != nil {
			return "", false, err
		}
		w := l.Merged
		off := math.Abs(float64(n)-w.RequestRate()*w.Latency.Mean().Seconds()) / float64(n)
		figures = append(figures, fmt.Sprintf("N=%d off by %.2f%%", n, 100*off))
		ok = ok && off <= 0.02
	}
	return strings.Join(figures, ", "), ok, nil
}

// groups holds a sweep against the law: callers settle into two groups that take
// turns, so that each run has half of their rows, up to the largest batch. That is
// so by Triton's rules; beside it stand the levels without settings, which beat the
// law where both groups fit into one batch.
func groups(ctx context.Context, b *bench) (string, bool, error) {
	exact, err := b.climb(ctx, "curve_flat_exact")
	if err != nil {
		return "", false, err
	}
	auto, err := b.climb(ctx, "curve_flat")
	if err != nil {
		return "", false, err
	}
	ok := math.Abs(exact.worst) <= 0.08 && exact.knee == 8 && max(exact.apart, auto.apart) <= 5
	return fmt.Sprintf("worst level %+.1f%% off, knee at %.0f; parts apart by %.1f us; infer/s of the law's: %s; without settings: %s",
		100*exact.worst, exact.knee, max(exact.apart, auto.apart), strings.Join(exact.levels, ", "), strings.Join(auto.levels, ", ")), ok, nil
}

// A climb is a sweep held against the law.
type climb struct {
	worst  float64  // of its levels, by how much it is off
	knee   float64  // the last level that brings more than the one before
	apart  float64  // microseconds by which the server's parts do not add up
	levels []string // callers: infer/s of what the law says
}

func (b *bench) climb(ctx context.Context, name string) (c climb, err error) {
	d, err := b.perf(ctx, name, "-p", "1000", "-r", "3", "-b", "2", "--concurrency-range", "2:16:2", "--allow-unstable")
	if err != nil {
		return c, err
	}
	if len(d.result.Levels) != 8 {
		return c, fmt.Errorf("%d levels, want 8: %s", len(d.result.Levels), d.stderr)
	}
	model, before := named(name), 0.0
	for i := range d.result.Levels {
		l := &d.result.Levels[i]
		rows := min(l.Load.Value, float64(model.MaxBatch)) // two rows a request, half of the callers
		want, got := rows/model.Cost(rows).Seconds(), l.Merged.Throughput()
		c.levels = append(c.levels, fmt.Sprintf("%.0f: %.0f/%.0f", l.Load.Value, got, want))
		if off := got/want - 1; math.Abs(off) > math.Abs(c.worst) {
			c.worst = off
		}
		if got > 1.08*before {
			c.knee = l.Load.Value
		}
		before = got
		c.apart = max(c.apart, apart(l.Merged.Server))
	}
	return c, nil
}

// apart returns the microseconds by which the parts of the server's latency, with
// the overhead, differ from the whole.
func apart(s *result.ServerStats) float64 {
	if s == nil {
		return math.Inf(1)
	}
	whole := s.Success.Mean()
	parts := s.Queue.Mean() + s.Input.Mean() + s.Infer.Mean() + s.Output.Mean()
	overhead := max(0, whole-parts)
	return math.Abs(float64(whole-parts-overhead)) / 1e3
}

func named(name string) perftest.Model {
	for _, m := range perftest.Models() {
		if m.Name == name {
			return m
		}
	}
	panic("BUG: bench/criteria: no fixture " + name)
}

func counts(ctx context.Context, b *bench) (string, bool, error) {
	d, err := b.perf(ctx, "curve_mid", append(quick, "--concurrency-range", "1:16:5", "--allow-unstable")...)
	if err != nil {
		return "", false, err
	}
	ok := true
	var parts []string
	for i := range d.result.Levels {
		l := &d.result.Levels[i]
		client, server := float64(l.Merged.Requests), float64(l.Merged.Server.Success.Count)
		ok = ok && math.Abs(client-server) <= l.Load.Value+0.005*client
		parts = append(parts, fmt.Sprintf("c=%.0f client %.0f server %.0f", l.Load.Value, client, server))
	}
	return strings.Join(parts, ", "), ok, nil
}

func stalled(ctx context.Context, b *bench) (string, bool, error) {
	rate := []string{"--request-rate-range", "500", "--request-count", "5000"}
	b.server.stall(5 * time.Second)
	d, l, err := b.level(ctx, "stall", rate...)
	if err != nil {
		return "", false, err
	}
	p95, p99 := l.Merged.Latency.Quantile(0.95).Seconds()*1e3, l.Merged.Latency.Quantile(0.99).Seconds()*1e3
	both := strings.Contains(d.out, "from when it was sent: p50")
	b.server.stall(5 * time.Second)
	four, l, err := b.level(ctx, "stall", append(rate, "--latency-clock", "send", "--max-outstanding", "4")...)
	if err != nil {
		return "", false, err
	}
	sent := l.Merged.Latency.Quantile(0.99).Seconds() * 1e3
	both = both && strings.Contains(four.out, "from when it was due: p50")
	ok := p99 >= 850 && p99 <= 1050 && p95 >= 400 && p95 <= 700 && sent < 50 && both
	return fmt.Sprintf("schedule p95 %.0f ms, p99 %.0f ms; send p99 %.2f ms; both printed: %v", p95, p99, sent, both), ok, nil
}

func paced(ctx context.Context, b *bench) (string, bool, error) {
	var parts []string
	ok := true
	for _, rate := range []float64{200, 1000, 2000} {
		d, l, err := b.level(ctx, "noop", append(quick, "--request-rate-range", fmt.Sprint(rate), "--allow-unstable")...)
		if err != nil {
			return "", false, err
		}
		off, lag := l.Merged.RequestRate()/rate-1, l.Merged.SendLag.Quantile(0.5)
		ok = ok && math.Abs(off) <= 0.005 && lag <= 1200*time.Microsecond && strings.Contains(d.out, "| send lag: p50")
		parts = append(parts, fmt.Sprintf("%.0f/s off by %.2f%%, lag p50 %v p99 %v", rate, 100*off, lag, l.Merged.SendLag.Quantile(0.99)))
	}
	return strings.Join(parts, "; "), ok, nil
}
