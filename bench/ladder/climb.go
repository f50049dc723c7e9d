package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

// A step is one way to serve a model.
type step struct {
	suffix    string // of the model's name
	title     string
	instances int
	settings  string // of config.pbtxt
}

var steps = []step{
	{"", "no batching", 1, ""},
	{"_dynamic", "dynamic batching", 1, "dynamic_batching { }\n"},
	{"_dynamic_2", "dynamic batching, 2 instances", 2, "dynamic_batching { }\n"},
}

// judgedCallers is where the floors hold, as in the tutorial that the steps are
// from.
const judgedCallers = 16

// An ascent is a model on all steps.
type ascent struct {
	model   peer.Model
	callers []int
	// floor is how many times the requests of the first step the second must
	// answer.
	floor float64
	// longer makes a run longer for a model that answers few requests a second.
	longer int
}

func ascents(work string) []ascent {
	return []ascent{
		{model: peer.MLP(), callers: []int{1, 8, 16, 64}, floor: 3, longer: 1},
		{model: peer.Credsweeper(work), callers: []int{1, 8, 16, 32}, floor: 4, longer: 2},
	}
}

// on returns the model as a step serves it.
func (a ascent) on(s step) peer.Model {
	return a.model.As(a.model.Name+s.suffix, s.instances, s.settings)
}

// climb serves every model on every step at once, and loads one after the other.
func climb(ctx context.Context, o options, chosen []ascent) (results, error) {
	r := results{Facts: report.Gather(), Rounds: o.rounds, Duration: o.duration.String()}
	var models []peer.Model
	for _, a := range chosen {
		for _, s := range steps {
			models = append(models, a.on(s))
		}
	}
	if err := os.MkdirAll(o.work, 0o755); err != nil {
		return r, err
	}
	command, err := peer.Shoal(o.shoal, o.work, models...)
	if err != nil {
		return r, err
	}
	r.Server = command.String()
	server, err := peer.Start(ctx, command)
	if err != nil {
		return r, err
	}
	defer server.Close()
	cells := make([][]cell, len(chosen))
	for i, a := range chosen {
		cells[i] = emptyCells(a)
	}
	for round := range o.rounds {
		for i, a := range chosen {
			if err := climbOnce(ctx, o, server, a, round, cells[i]); err != nil {
				return r, err
			}
		}
	}
	for i, a := range chosen {
		r.Models = append(r.Models, judge(a, cells[i]))
	}
	return r, nil
}

// emptyCells returns a cell for every number of callers on every step.
func emptyCells(a ascent) []cell {
	var cells []cell
	for i, s := range steps {
		for _, callers := range a.callers {
			cells = append(cells, cell{Step: s.title, Callers: callers, step: i})
		}
	}
	return cells
}

// climbOnce loads a model once in every cell. Steps with the same number of
// callers follow each other, for they are compared; which is first changes from
// round to round.
func climbOnce(ctx context.Context, o options, server *peer.Server, a ascent, round int, cells []cell) error {
	for i := range a.callers {
		for turn := range steps {
			at := (turn + round) % len(steps)
			c := &cells[at*len(a.callers)+i]
			got, err := run(ctx, server, a.on(steps[at]), c.Callers, o.warmup, time.Duration(a.longer)*o.duration)
			if err != nil {
				return err
			}
			c.Rounds = append(c.Rounds, got)
			fmt.Fprintf(os.Stderr, "round %d/%d %-11s %-29s %s\n", round+1, o.rounds, a.model.Name, c.Step, line(c.Callers, got))
		}
	}
	return nil
}

func run(ctx context.Context, server *peer.Server, m peer.Model, callers int, warmup, duration time.Duration) (measure.Sample, error) {
	target, err := measure.Binary(server.HTTP, m)
	if err != nil {
		return measure.Sample{}, err
	}
	return measure.Run(ctx, server, measure.Load{Model: m.Name, Target: target, Callers: callers, Warmup: warmup, Duration: duration})
}

// loadAt loads a server that somebody else started, and says what came of it.
func loadAt(ctx context.Context, o options, chosen []ascent, w io.Writer) error {
	if len(chosen) != 1 {
		return fmt.Errorf("--at %s: --model says which of its models to load", o.at)
	}
	a := chosen[0]
	server := &peer.Server{Name: o.at, HTTP: o.at}
	for _, callers := range a.callers {
		got, err := run(ctx, server, a.model, callers, o.warmup, o.duration)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, line(callers, got))
	}
	return nil
}

// line says in a line what a run came to.
func line(callers int, s measure.Sample) string {
	return fmt.Sprintf("callers %2d: %6.0f infer/s, p50 %6.2f ms, p95 %6.2f ms, p99 %6.2f ms, mean batch %4.1f, queue %6.2f ms",
		callers, s.Throughput, s.P50/1e3, s.P95/1e3, s.P99/1e3, s.MeanBatch, s.Queue/1e3)
}
