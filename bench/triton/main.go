// Command triton compares Shoal with a real tritonserver: the same load on both,
// run by run in turn, judged by the CPU time that a request costs the server
// process. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, venv, work string
	rounds            int
	warmup, duration  time.Duration
	rows, profile     string
	pin               bool
}

func main() {
	o := options{Command: report.NewCommand("triton")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.venv, "triton-venv", "build/triton-venv", "virtual environment with nvidia-pytriton")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; figures are medians of them")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "load in one run")
	flag.DurationVar(&o.warmup, "warmup", 300*time.Millisecond, "load before it that is not counted")
	flag.StringVar(&o.rows, "rows", "", "only rows with one of these words, separated by commas, in their name")
	flag.StringVar(&o.profile, "profile", "", "compare nothing; load Shoal alone and write CPU profiles of it into this folder")
	flag.BoolVar(&o.pin, "pin", false, "keep the servers on the first half of the cores and the client on the rest")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench runs the whole comparison and returns the rows that missed their floor.
func bench(ctx context.Context, o options) (missed []string, err error) {
	rows, mlps, err := chooseAll(splitWords(o.rows))
	if err != nil {
		return nil, err
	}
	if o.profile != "" {
		return nil, profile(ctx, o, rows, mlps)
	}
	if o.rounds < 1 {
		return nil, fmt.Errorf("--rounds %d: at least one is needed", o.rounds)
	}
	r := results{Facts: report.Gather(), Rounds: o.rounds, Duration: o.duration.String(), Pinned: "no"}
	models := modelsOf(rows, mlps)
	shoal, err := peer.Shoal(o.shoal, o.work, models...)
	if err != nil {
		return nil, err
	}
	triton, err := peer.Triton(o.venv, o.work, models...)
	if err != nil {
		return nil, err
	}
	if o.pin {
		server, client := peer.Halves(runtime.NumCPU())
		r.Pinned = fmt.Sprintf("servers on cores %v, client on %v", server, client)
		shoal.CPUs, triton.CPUs = server, server
		if err := peer.PinSelf(client); err != nil {
			return nil, err
		}
	}
	r.Servers = []string{shoal.String(), triton.String()}

	s, err := peer.Start(ctx, shoal)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	t, err := peer.Start(ctx, triton)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if r.Rows, err = runRows(ctx, o, rows, s, t); err != nil {
		return nil, err
	}
	if r.MLP, err = runMLP(ctx, o, mlps, s); err != nil {
		return nil, err
	}
	return r.missed(), o.Publish(os.Stdout, r, r.tables(), r.page())
}

// modelsOf returns the models that the rows load, each once.
func modelsOf(rows []row, mlps []mlpRow) []peer.Model {
	var models []peer.Model
	add := func(m peer.Model) {
		if !slices.ContainsFunc(models, func(o peer.Model) bool { return o.Name == m.Name }) {
			models = append(models, m)
		}
	}
	for _, r := range rows {
		add(r.payload.model)
	}
	for _, r := range mlps {
		add(r.model)
	}
	return models
}

// runRows goes through all rows in every round, so that the rounds of a row lie
// minutes apart. Which server is first changes from round to round.
func runRows(ctx context.Context, o options, rows []row, shoal, triton *peer.Server) ([]comparison, error) {
	pairs := make([][]pair, len(rows))
	for round := range o.rounds {
		for i, r := range rows {
			var p pair
			order := []struct {
				server *peer.Server
				into   *measure.Sample
			}{{shoal, &p.Shoal}, {triton, &p.Triton}}
			if round%2 == 1 {
				order[0], order[1] = order[1], order[0]
			}
			for _, one := range order {
				l, err := r.load(one.server, o.warmup, o.duration)
				if err != nil {
					return nil, err
				}
				if *one.into, err = measure.Run(ctx, one.server, l); err != nil {
					return nil, err
				}
			}
			pairs[i] = append(pairs[i], p)
			fmt.Fprintf(os.Stderr, "round %d/%d %-22s CPU %6.1f : %6.1f = %.2f   p50 %6.0f : %6.0f = %.2f\n", round+1, o.rounds, r.name(),
				p.Shoal.CPU, p.Triton.CPU, p.Shoal.CPU/p.Triton.CPU, p.Shoal.P50, p.Triton.P50, p.Shoal.P50/p.Triton.P50)
		}
	}
	p99Limit := sharedP99
	if o.pin {
		p99Limit = pinnedP99
	}
	var all []comparison
	for i, r := range rows {
		all = append(all, compare(r, pairs[i], p99Limit))
	}
	return all, nil
}

func splitWords(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
