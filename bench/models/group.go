package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/load"
)

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
	triton []measure.Sample
	auto   []measure.Sample    // beside static, on the server that has one copy of the model
	static []measure.Sample    // of the best setting
	slices [2][]measure.Sample // of auto and static, in turn
	limit  []batchCost         // ONNX Runtime alone, at its best batch
	chosen string              // the best static setting
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
	r := runner{options: o, alone: a, costs: costs}
	defer r.close()
	if err := r.start(ctx, g); err != nil {
		return modelCost{}, nil, err
	}
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

// start starts Shoal and, if one is named, Triton with the model as the setting has it,
// and a server that has it also in every static setting.
func (r *runner) start(ctx context.Context, g group) error {
	auto := g.model.As(g.model.Name, g.setting.instances, g.setting.batching)
	var commands []peer.Command
	add := func(c peer.Command, err error) error {
		commands = append(commands, c)
		return err
	}
	err := add(peer.Shoal(r.options.shoal, r.work, auto))
	if len(g.statics) > 0 {
		models := []peer.Model{auto}
		for i, s := range g.statics {
			models = append(models, staticModel(g, i, s))
		}
		err = errors.Join(err, add(oneCopyServer(r.work, models...)))
	}
	for i := range commands {
		commands[i].Args = append(commands[i].Args, "--onnxruntime-library", r.library)
	}
	if r.options.triton != "" {
		err = errors.Join(err, add(peer.TritonONNX(r.options.triton, r.backends, r.work, auto)))
	}
	if err != nil {
		return err
	}
	var cpus []int
	if r.pin {
		server, client := peer.Halves(runtime.NumCPU())
		cpus = server
		if err := peer.PinSelf(client); err != nil {
			return err
		}
	}
	for _, c := range commands {
		c.CPUs = cpus
		s, err := peer.Start(ctx, c)
		if err != nil {
			return err
		}
		r.servers = append(r.servers, s)
	}
	r.shoal = r.servers[0]
	if len(g.statics) > 0 {
		r.oneCopy = r.servers[1]
	}
	if r.options.triton != "" {
		r.triton = r.servers[len(r.servers)-1]
	}
	return nil
}

// close ends the servers.
func (r *runner) close() {
	for _, s := range r.servers {
		s.Close()
	}
}

func staticModel(g group, i int, s static) peer.Model {
	return g.model.As(fmt.Sprintf("%s_static%d", g.model.Name, i), g.setting.instances, s.batching())
}

// A runner measures the cells of a group.
type runner struct {
	options
	alone   *alone
	costs   []batchCost // of ONNX Runtime alone
	servers []*peer.Server
	shoal   *peer.Server
	triton  *peer.Server // nil when none is named
	oneCopy *peer.Server // with the static settings; nil when there are none
}

// measure compares a cell's static settings in slices and then runs its sides in turn,
// another one first in every round.
func (r runner) measure(ctx context.Context, c cell, statics []static) (measured, error) {
	auto := c.model.As(c.model.Name, c.setting.instances, c.setting.batching)
	m := measured{cell: c}
	all := []*[]measure.Sample{&m.shoal}
	sides := []side{{"shoal", r.shoal, auto}}
	if r.triton != nil {
		all, sides = append(all, &m.triton), append(sides, side{"triton", r.triton, auto})
	}
	if len(statics) > 0 {
		one := side{"shoal, one copy", r.oneCopy, auto}
		best, got, err := r.compareStatics(ctx, c, one, statics)
		if err != nil {
			return measured{}, err
		}
		m.slices, m.chosen = got, best.name
		all, sides = append(all, &m.auto, &m.static), append(sides, one, best)
	}
	for n := range r.rounds {
		got, limit, err := r.round(ctx, c, n, sides)
		if err != nil {
			return measured{}, err
		}
		for i, s := range got {
			*all[i] = append(*all[i], s)
		}
		m.limit = append(m.limit, limit)
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
		limit, err = r.alone.cost(ctx, bestBatch(r.costs).Rows, r.duration/4)
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
