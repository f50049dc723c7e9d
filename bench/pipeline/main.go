// Command pipeline measures what a step of an ensemble and a call of a Python model
// to another one (BLS) cost, by chains of 1, 3 and 10 identity models, with a real
// tritonserver beside Shoal. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, python, work, triton, backends, only string
	rounds                                      int
	warmup, duration                            time.Duration
}

func main() {
	o := options{Command: report.NewCommand("pipeline")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.python, "python", "python3", "a Python with numpy for Shoal's workers; those of Triton take the first one on the PATH")
	flag.StringVar(&o.work, "work", "build/bench/pipeline", "folder for models and logs")
	flag.StringVar(&o.triton, "tritonserver", "", "a tritonserver to compare with; needs --backends")
	flag.StringVar(&o.backends, "backends", "", "its folder of backends: onnxruntime and python")
	flag.StringVar(&o.only, "only", "", "only kinds of chain with this in their name")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds; figures are medians of them, and ratios medians of the rounds' own")
	flag.DurationVar(&o.warmup, "warmup", 150*time.Millisecond, "load before each run that does not count")
	flag.DurationVar(&o.duration, "duration", 400*time.Millisecond, "load in one run")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench measures and returns the floors that were missed.
func bench(ctx context.Context, o options) (missed []string, err error) {
	r := results{Facts: report.Gather(), Rounds: o.rounds, CopyUS: copyTime()}
	repository := filepath.Join(o.work, "models")
	if err := writeRepository(repository); err != nil {
		return nil, err
	}
	command, err := peer.ShoalRepository(o.shoal, o.work, repository, "--python", o.python)
	if err != nil {
		return nil, err
	}
	commands := []peer.Command{command}
	if o.triton != "" {
		commands = append(commands, peer.TritonRepository(o.triton, o.backends, o.work, repository))
	}
	var servers []*peer.Server
	for _, c := range commands {
		s, err := peer.Start(ctx, c)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		servers = append(servers, s)
		r.Commands = append(r.Commands, c.String())
	}
	for _, k := range kinds {
		if strings.Contains(k.name, o.only) {
			r.Chains = append(r.Chains, newChain(k, servers))
		}
	}
	for round := range max(o.rounds, 1) { // each round has everything: a machine has good and bad seconds
		order := slices.Clone(servers)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for i := range r.Chains {
			for _, s := range order {
				if err := r.Chains[i].measure(ctx, o, s); err != nil {
					return nil, err
				}
			}
		}
		if strings.Contains(crops, o.only) {
			for _, s := range order {
				if err := r.measureCrops(ctx, o, s); err != nil {
					return nil, err
				}
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
	}
	return r.missed(), o.Publish(os.Stdout, r, r.table(), r.page())
}

// measure loads the chains of all lengths on a server once, with one caller.
func (c *chain) measure(ctx context.Context, o options, s *peer.Server) error {
	run := make([]measure.Sample, len(lengths))
	for i, n := range lengths {
		m := c.kind.model(n)
		target, err := measure.Binary(s.HTTP, m)
		if err != nil {
			return err
		}
		run[i], err = measure.Run(ctx, s, measure.Load{Model: c.kind.part, Target: target, Callers: 1, Warmup: o.warmup, Duration: o.duration})
		if err != nil {
			return err
		}
	}
	c.Runs[s.Name] = append(c.Runs[s.Name], run)
	return nil
}

// measureCrops has four callers whose model calls the recogniser eight times at
// once for each request.
func (r *results) measureCrops(ctx context.Context, o options, s *peer.Server) error {
	m := peer.Identity(crops, cropWidth)
	m.Answer = 16
	target, err := measure.Binary(s.HTTP, m)
	if err != nil {
		return err
	}
	sample, err := measure.Run(ctx, s, measure.Load{Model: recogniser, Target: target, Callers: 4, Warmup: o.warmup, Duration: o.duration})
	if err != nil {
		return err
	}
	if r.Crops == nil {
		r.Crops = make(map[string][]measure.Sample)
	}
	r.Crops[s.Name] = append(r.Crops[s.Name], sample)
	return nil
}

// copyTime returns how long one copy of a tensor of 602 KB takes, in
// microseconds.
func copyTime() float64 {
	from, to := make([]byte, 4*bigWidth), make([]byte, 4*bigWidth)
	for i := range from {
		from[i] = byte(i)
	}
	var times []float64
	for range 201 {
		begin := time.Now()
		copy(to, from)
		times = append(times, float64(time.Since(begin))/1e3)
	}
	return report.Median(times)
}
