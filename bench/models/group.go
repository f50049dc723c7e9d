package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/load"
)

// finalists is how many of the static settings are measured in every round,
// after each had one run.
const finalists = 2

// A side is one of those that are compared in a cell.
type side struct {
	name   string
	server *peer.Server
	model  peer.Model
}

// A measured cell is what the rounds of a cell gave, by side. The sides of one
// place ran one after the other.
type measured struct {
	cell   cell
	shoal  []measure.Sample
	static []measure.Sample // of the best setting
	triton []measure.Sample
	limit  []batchCost // ONNX Runtime alone, at its best batch
	chosen string      // the best static setting
}

// A modelCost is what batches of a model cost ONNX Runtime alone.
type modelCost struct {
	Model     string      `json:"model"`
	Instances int         `json:"instances"`
	Batches   []batchCost `json:"batches"`
}

// measureGroup starts the servers with a model in a setting and measures its
// cells. When one fails it returns those before it, too.
func measureGroup(ctx context.Context, o options, lib *ort.Library, g group) (modelCost, []measured, error) {
	a, err := openAlone(lib, o.work, g.model, g.setting.instances)
	if err != nil {
		return modelCost{}, nil, err
	}
	defer a.close()
	costs, err := a.costs(ctx, o.duration/10)
	if err != nil {
		return modelCost{}, nil, err
	}
	shoal, triton, err := startServers(ctx, o, g)
	if err != nil {
		return modelCost{}, nil, err
	}
	defer shoal.Close()
	if triton != nil {
		defer triton.Close()
	}
	r := runner{options: o, alone: a, best: bestBatch(costs).Rows, shoal: shoal, triton: triton}
	cost := modelCost{g.model.Name, g.setting.instances, costs}
	var all []measured
	for _, c := range g.cells {
		m, err := r.measure(ctx, c, g.statics)
		if err != nil {
			return cost, all, err
		}
		all = append(all, m)
	}
	return cost, all, nil
}

// startServers starts Shoal with the model as the setting has it and once for each
// static setting, and Triton, if one is named, with the first.
func startServers(ctx context.Context, o options, g group) (shoal, triton *peer.Server, err error) {
	auto := g.model.As(g.model.Name, g.setting.instances, g.setting.batching)
	models := []peer.Model{auto}
	for i, s := range g.statics {
		models = append(models, staticModel(g, i, s))
	}
	command, err := peer.Shoal(o.shoal, o.work, models...)
	if err != nil {
		return nil, nil, err
	}
	command.Args = append(command.Args, "--onnxruntime-library", o.library)
	var cpus []int
	if o.pin {
		server, client := peer.Halves(runtime.NumCPU())
		cpus = server
		if err := peer.PinSelf(client); err != nil {
			return nil, nil, err
		}
	}
	command.CPUs = cpus
	if shoal, err = peer.Start(ctx, command); err != nil || o.triton == "" {
		return shoal, nil, err
	}
	if command, err = peer.TritonONNX(o.triton, o.backends, o.work, auto); err == nil {
		command.CPUs = cpus
		triton, err = peer.Start(ctx, command)
	}
	if err != nil {
		shoal.Close()
	}
	return shoal, triton, err
}

func staticModel(g group, i int, s static) peer.Model {
	return g.model.As(fmt.Sprintf("%s_static%d", g.model.Name, i), g.setting.instances, s.batching())
}

// A runner measures the cells of a group.
type runner struct {
	options
	alone         *alone
	best          int // rows of the best batch of ONNX Runtime alone
	shoal, triton *peer.Server
}

// measure runs the sides of a cell in turn, another one first in every round.
func (r runner) measure(ctx context.Context, c cell, statics []static) (measured, error) {
	auto := c.model.As(c.model.Name, c.setting.instances, c.setting.batching)
	sides := []side{{"shoal", r.shoal, auto}}
	if r.triton != nil {
		sides = append(sides, side{"triton", r.triton, auto})
	}
	best, err := r.search(ctx, c, statics)
	if err != nil {
		return measured{}, err
	}
	sides = append(sides, best...)
	m := measured{cell: c}
	samples := make([][]measure.Sample, len(sides))
	for n := range r.rounds {
		got, limit, err := r.round(ctx, c, n, sides)
		if err != nil {
			return measured{}, err
		}
		for i, s := range got {
			samples[i] = append(samples[i], s)
		}
		m.limit = append(m.limit, limit)
	}
	m.shoal = samples[0]
	if r.triton != nil {
		m.triton = samples[1]
	}
	if len(best) > 0 {
		finals := samples[len(sides)-len(best):]
		at := bestOf(finals)
		m.static, m.chosen = finals[at], best[at].name
	}
	return m, nil
}

// round runs every side once, and all again if the host gave the cores to other
// machines meanwhile: figures that lie in different times cannot be compared.
func (r runner) round(ctx context.Context, c cell, n int, sides []side) (samples []measure.Sample, limit batchCost, err error) {
	err = r.undisturbed(ctx, func() (float64, error) {
		samples = make([]measure.Sample, len(sides))
		worst := 0.0
		for turn := range sides {
			i := (turn + n) % len(sides)
			s, err := r.run(ctx, c, sides[i], r.duration)
			if err != nil {
				return 0, err
			}
			samples[i], worst = s, max(worst, s.Stolen)
			r.progress(c, n, sides[i].name, s)
		}
		limit, err = r.alone.cost(ctx, r.best, r.duration/4)
		return worst, err
	})
	return samples, limit, err
}

// pause is how long the bench waits before it repeats what was disturbed.
const pause = 3 * time.Second

// undisturbed repeats what returns the share of other machines until that is small
// enough, and requests are answered, or the patience is used up.
func (r runner) undisturbed(ctx context.Context, run func() (stolen float64, err error)) error {
	for start := time.Now(); ; {
		stolen, err := run()
		disturbed := err == nil && stolen > r.steal || errors.Is(err, measure.ErrNoAnswer)
		if !disturbed || time.Since(start) >= r.patience {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// search runs every static setting once and returns the best ones. A caller
// alone has nobody to wait for: there only the setting without a delay counts.
func (r runner) search(ctx context.Context, c cell, statics []static) ([]side, error) {
	type tried struct {
		side
		throughput float64
	}
	var all []tried
	for i, s := range statics {
		if c.callers == 1 && s != (static{}) {
			continue
		}
		one := side{s.String(), r.shoal, staticModel(group{model: c.model, setting: c.setting}, i, s)}
		var got measure.Sample
		err := r.undisturbed(ctx, func() (_ float64, err error) {
			got, err = r.run(ctx, c, one, r.duration/2)
			return got.Stolen, err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, tried{one, got.Throughput})
	}
	slices.SortStableFunc(all, func(a, b tried) int { return -cmp.Compare(a.throughput, b.throughput) })
	var best []side
	for _, t := range all[:min(finalists, len(all))] {
		best = append(best, t.side)
	}
	return best, nil
}

// bestOf returns which of the finalists has the highest median throughput.
func bestOf(finals [][]measure.Sample) int {
	at, most := 0, 0.0
	for i, samples := range finals {
		if t := measure.Medians(samples).Throughput; t > most {
			at, most = i, t
		}
	}
	return at
}

// run loads one side once.
func (r runner) run(ctx context.Context, c cell, s side, duration time.Duration) (measure.Sample, error) {
	target, err := r.target(c, s)
	if err != nil {
		return measure.Sample{}, err
	}
	l := measure.Load{Model: s.model.Name, Target: target, Callers: c.callers, Warmup: r.warmup, Duration: duration}
	if c.generator == tool {
		return r.tool(c.protocol).Run(ctx, s.server, s.model, l)
	}
	return measure.Run(ctx, s.server, l)
}

func (r runner) target(c cell, s side) (load.Target, error) {
	if c.protocol == grpc {
		return measure.GRPC(s.server.GRPC, s.model)
	}
	return measure.Binary(s.server.HTTP, s.model)
}

func (r runner) progress(c cell, round int, name string, s measure.Sample) {
	fmt.Fprintf(os.Stderr, "%s, round %d/%d, %-28s %8.0f req/s  p50 %8.0f us  p99 %8.0f us  batch %5.1f  CPU %7.0f us/req  %.2f cores, other machines %.0f %%\n",
		c.name(), round+1, r.rounds, name, s.Throughput, s.P50, s.P99, s.MeanBatch, s.CPU, s.CPU*s.Throughput/1e6, 100*s.Stolen)
}
