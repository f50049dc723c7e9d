package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"shoal/bench/internal/report"
	"shoal/internal/perf/live"
)

// watched compares the throughput of noop and the client's CPU for a request with
// a view and without, each slice of a run with its neighbours. A view may cost up
// to 2 %; the interval says how well two shared cores let that be known.
func watched(ctx context.Context, b *bench) (string, bool, error) {
	var figures []string
	ok := true
	for _, mode := range []live.Mode{live.Line, live.Full} {
		slices, err := b.watch(ctx, mode)
		if err != nil {
			return "", false, err
		}
		loss, cpu := costs(slices)
		if len(loss) < 10 {
			return "", false, fmt.Errorf("%d slices of the run, want many more", len(slices))
		}
		low, high := interval(loss)
		cpuLow, cpuHigh := interval(cpu)
		ok = ok && report.TrimmedMean(loss) <= 0.02
		figures = append(figures, fmt.Sprintf("%s costs %+.2f%% of the throughput (95%% interval %+.2f to %+.2f%%, %d comparisons) and %+.2f%% (%+.2f to %+.2f%%) of the client's CPU a request",
			mode, 100*report.TrimmedMean(loss), 100*low, 100*high, len(loss), 100*report.TrimmedMean(cpu), 100*cpuLow, 100*cpuHigh))
	}
	silent, err := b.silent(ctx)
	return fmt.Sprintf("%s; nothing is drawn where there is no terminal: %v", strings.Join(figures, "; "), silent), ok && silent, err
}

func interval(values []float64) (low, high float64) {
	return report.Interval(len(values), func(rounds []int) float64 { return report.TrimmedMean(report.Pick(values, rounds)) })
}

// costs returns what the view takes of the throughput and adds to the client's CPU
// for a request, by each four slices: off, on, on, off.
func costs(slices []watchSlice) (loss, cpu []float64) {
	for i := 0; i+4 <= len(slices); i += 4 {
		var sum [2]watchSlice // off, on
		for _, s := range slices[i : i+4] {
			n := &sum[0]
			if s.On {
				n = &sum[1]
			}
			n.Requests += s.Requests
			n.Length += s.Length
			n.CPU += s.CPU
		}
		off, on := sum[0], sum[1]
		if on.Length == 0 || off.Length == 0 || off.Requests == 0 || on.Requests == 0 {
			continue // the last four are not complete
		}
		rate := func(s watchSlice) float64 { return float64(s.Requests) / s.Length.Seconds() }
		each := func(s watchSlice) float64 { return float64(s.CPU) / float64(s.Requests) }
		loss = append(loss, 1-rate(on)/rate(off))
		cpu = append(cpu, each(on)/each(off)-1)
	}
	return loss, cpu
}

// silent says whether a run without a terminal draws nothing.
func (b *bench) silent(ctx context.Context) (bool, error) {
	out, stderr, code, err := b.run(ctx, "perf", "-m", "noop", "-u", b.server.HTTP, "--request-count", "1000")
	return code == 0 && stderr == "" && !strings.Contains(out, "\x1b"), err
}

// outside finds what a browser would fetch.
var outside = regexp.MustCompile(`(?i)(https?:)?//[a-z]|@import|\burl\(|<(link|img|iframe|object|embed|base)\b|\ssrc=`)

// paged writes the page of a million requests.
func paged(ctx context.Context, b *bench) (string, bool, error) {
	dir, err := os.MkdirTemp("", "shoal-criteria-")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "page.html")
	_, stderr, code, err := b.run(ctx, "perf", "-m", "noop", "-u", b.server.HTTP, "--concurrency-range", "16", "--request-count", "1000000", "--html", file)
	if err != nil {
		return "", false, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", false, fmt.Errorf("%w; exit code %d: %s", err, code, stderr)
	}
	text := regexp.MustCompile(`href="data:[^"]*"`).ReplaceAllString(string(data), "")
	references := len(outside.FindAllString(text, -1))
	return fmt.Sprintf("%d bytes, %d references", len(data), references), len(data) <= 600_000 && references == 0, nil
}
