// Command size measures how small Shoal is: the time from exec to ready with one
// small ONNX model, the idle memory with ONNX Runtime loaded, the binary. A real
// tritonserver is measured beside it. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, venv, work string
	rounds            int
	settle            time.Duration
}

func main() {
	o := options{Command: report.NewCommand("size")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.venv, "triton-venv", "build/triton-venv", "virtual environment with nvidia-pytriton")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.IntVar(&o.rounds, "rounds", 5, "starts of each server; figures are medians of them")
	flag.DurationVar(&o.settle, "settle", time.Second, "idle time between ready and the reading of the memory")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench starts every server in every round and returns the floors that were
// missed.
func bench(ctx context.Context, o options) (missed []string, err error) {
	if o.rounds < 1 {
		return nil, fmt.Errorf("--rounds %d: at least one is needed", o.rounds)
	}
	cases, err := casesFor(o)
	if err != nil {
		return nil, err
	}
	r := results{Facts: report.Gather(), Rounds: o.rounds}
	for round := range o.rounds {
		for i := range cases {
			got, err := start(ctx, cases[i].command, o.settle)
			if err != nil {
				return nil, err
			}
			cases[i].Starts = append(cases[i].Starts, got)
			fmt.Fprintf(os.Stderr, "round %d/%d %-26s ready %6.0f ms, RSS %5.1f MB\n", round+1, o.rounds, cases[i].Name, got.ReadyMS, got.RSSMB)
		}
	}
	for _, c := range cases {
		c.summarise()
		r.Cases = append(r.Cases, c)
	}
	return r.missed(), o.Publish(os.Stdout, r, r.table(), r.page())
}

// casesFor returns what is started: Shoal, and the two Tritons beside it.
func casesFor(o options) ([]result, error) {
	shoal, err := peer.Shoal(o.shoal, o.work, peer.Small)
	if err != nil {
		return nil, err
	}
	empty, err := peer.Triton(o.venv, o.work)
	if err != nil {
		return nil, err
	}
	python, err := peer.Triton(o.venv, o.work, peer.Small)
	if err != nil {
		return nil, err
	}
	cases := []result{
		{Name: "Shoal, one ONNX model", command: shoal, floors: &shoalFloors},
		{Name: "Triton, no models", command: empty},
		{Name: "Triton, one Python model", command: python},
	}
	for i := range cases {
		c := &cases[i]
		c.Command = c.command.String()
		if c.BinaryMB, err = fileMB(c.command.Args[0]); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// start starts a server once and says what that took.
func start(ctx context.Context, c peer.Command, settle time.Duration) (once, error) {
	s, err := peer.Start(ctx, c)
	if err != nil {
		return once{}, err
	}
	defer s.Close()
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return once{}, ctx.Err()
	}
	rss, err := s.Process.RSS()
	if err != nil {
		return once{}, err
	}
	got := once{ReadyMS: float64(s.Startup) / 1e6, RSSMB: float64(rss) / 1e6}
	for _, w := range s.Workers {
		if rss, err := w.RSS(); err == nil {
			got.WorkersRSSMB += float64(rss) / 1e6
		}
	}
	return got, nil
}

func fileMB(path string) (float64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return float64(info.Size()) / 1e6, nil
}
