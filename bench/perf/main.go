// Command perf measures the load generator itself: beside NVIDIA's perf_analyzer
// on the same servers, at given rates, and on a server that does nothing. See
// bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	shoal, venv, analyzer, work, out string
	rounds                           int
	window, memory                   time.Duration
	reportOnly, serve                bool
}

func main() {
	var o options
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.venv, "triton-venv", "build/triton-venv", "virtual environment with nvidia-pytriton")
	flag.StringVar(&o.analyzer, "perf-analyzer", "build/perf_analyzer", "folder with perf_analyzer and, under lib, its libraries")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.StringVar(&o.out, "out", "bench/results", "folder for perf.json and perf.md; empty writes none")
	flag.IntVar(&o.rounds, "rounds", 8, "rounds of each comparison with perf_analyzer")
	flag.DurationVar(&o.window, "window", 600*time.Millisecond, "length of a window of a comparison; each run has three")
	flag.DurationVar(&o.memory, "memory-time", 20*time.Second, "how long the client's memory is watched at 2000 requests a second")
	flag.BoolVar(&o.reportOnly, "report-only", false, "exit 0 even when a floor is missed")
	flag.BoolVar(&o.serve, "serve-trivial", false, "be the server that does nothing, for a client on another core")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.serve {
		if err := serveForever(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench/perf:", err)
			os.Exit(1)
		}
		return
	}
	missed, err := bench(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/perf:", err)
		os.Exit(1)
	}
	if len(missed) > 0 {
		fmt.Fprintln(os.Stderr, "bench/perf: floors missed:", strings.Join(missed, "; "))
		if !o.reportOnly {
			os.Exit(1)
		}
	}
}

// bench runs everything and returns the floors that were missed.
func bench(ctx context.Context, o options) (missed []string, err error) {
	if o.rounds < 1 {
		return nil, fmt.Errorf("--rounds %d: at least one is needed", o.rounds)
	}
	if err := os.MkdirAll(o.work, 0o755); err != nil {
		return nil, err
	}
	r := &results{Facts: report.Gather(), Rounds: o.rounds}
	if err := r.oneCore(ctx, o); err != nil {
		return nil, fmt.Errorf("20,000 requests a second: %w", err)
	}
	body := peer.Identity("body", 3200) // 12.8 KB
	shoal, err := peer.Shoal(o.shoal, o.work, peer.Small, body)
	if err != nil {
		return nil, err
	}
	if err := addSlow(&shoal, o.work); err != nil {
		return nil, err
	}
	own, err := peer.Start(ctx, shoal)
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }() // what was measured counts
	for _, step := range []func(context.Context, options, *peer.Server) error{r.pace, r.body, r.memory} {
		if err := step(ctx, o, own); err != nil {
			return nil, err
		}
	}
	command, err := peer.Triton(o.venv, o.work, peer.Small, slowOnTriton())
	if err != nil {
		return nil, err
	}
	triton, err := peer.Start(ctx, command)
	if err != nil {
		return nil, err
	}
	defer func() { _ = triton.Close() }()
	for _, s := range []*peer.Server{own, triton} {
		if err := r.compare(ctx, o, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	missed = r.missed()
	page := r.page()
	fmt.Println(page)
	if o.out == "" {
		return missed, nil
	}
	return missed, report.Write(o.out, "perf", r, page)
}
