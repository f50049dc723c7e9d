package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"shoal/bench/internal/peer"
	"shoal/internal/load"
)

// factor is how much more than it can serve the server is sent.
const factor = 2

// calm is the pace of a lone caller that shows what is normal: each request finds
// the server idle, as the first one after the load does. Without a pause between
// them they would find warm caches, and be faster.
var calm = load.Pace{Rate: 40, Duration: 2 * time.Second}

// run finds out what the server can serve, overloads it, and sees how it is
// afterwards.
func run(ctx context.Context, o options, r row, s *peer.Server) (outcome, error) {
	lone, loneErr := callers(ctx, r, s, 1)
	closed, closedErr := callers(ctx, r, s, r.callers)
	open, openErr := callers(ctx, r, s, r.crowd)
	for _, g := range []*load.Generator{lone, closed, open} {
		if g != nil {
			defer g.Close()
		}
	}
	if err := errors.Join(loneErr, closedErr, openErr); err != nil {
		return outcome{}, err
	}
	out := outcome{Row: r.name, About: r.about, Timeout: millis(r.timeout)}
	normal, err := lone.RunPaced(ctx, calm)
	if err != nil {
		return out, err
	}
	out.Normal = timesOf(&normal.Good)
	before, err := serve(ctx, closed, load.Limit{Duration: o.capacity})
	if err != nil {
		return out, err
	}
	// Every connection of the crowd is used once: the buffers that the server gives
	// a connection with its first request are no growth of its memory.
	if _, err := open.Run(ctx, load.Limit{Requests: int64(4 * r.crowd)}); err != nil {
		return out, err
	}
	if err := overload(ctx, o, r, s, open, before.Throughput(), &out); err != nil {
		return out, err
	}
	first, err := serve(ctx, lone, load.Limit{Requests: 1})
	if err != nil {
		return out, err
	}
	out.First = millis(first.Latency.Max())
	again, err := lone.RunPaced(ctx, calm)
	if err != nil {
		return out, err
	}
	out.After = timesOf(&again.Good)
	after, err := serve(ctx, closed, load.Limit{Duration: o.capacity})
	if err != nil {
		return out, err
	}
	out.CapacityBefore, out.CapacityAfter = before.Throughput(), after.Throughput()
	out.Capacity = (out.CapacityBefore + out.CapacityAfter) / 2
	return out, nil
}

// overload sends factor times the capacity and notes what came of it.
func overload(ctx context.Context, o options, r row, s *peer.Server, g *load.Generator, capacity float64, out *outcome) error {
	out.Offered = factor * capacity
	self := load.Watch(os.Getpid())
	serverBefore, selfBefore := load.CPU([]load.Process{s.Process}), load.CPU([]load.Process{self})
	memory := watchMemory(s.Process)
	got, err := g.RunPaced(ctx, load.Pace{Rate: out.Offered, Duration: o.duration})
	sizes, memoryErr := memory.stop()
	if err := errors.Join(err, memoryErr); err != nil {
		return err
	}
	out.Memory = growth(sizes)
	out.ServerCores = cores(load.CPU([]load.Process{s.Process})-serverBefore, got.Elapsed)
	out.ClientCores = cores(load.CPU([]load.Process{self})-selfBefore, got.Elapsed)
	out.Goodput = got.Goodput()
	out.Good, out.SentLate = timesOf(&got.Good), timesOf(&got.Late)
	refused := new(load.Histogram)
	for kind, h := range got.Failed {
		if kind == "http 503" || kind == "grpc Unavailable" {
			refused.Merge(h)
			delete(got.Failed, kind)
		}
	}
	out.Refused = timesOf(refused)
	out.Lost = make(map[string]int64)
	for kind, h := range maps.All(got.Failed) {
		out.Lost[kind] = h.Count()
	}
	return nil
}

func callers(ctx context.Context, r row, s *peer.Server, n int) (*load.Generator, error) {
	target, err := r.target(s, r.model)
	if err != nil {
		return nil, err
	}
	return load.Open(ctx, target, n)
}

// serve makes load that the server must be able to serve.
func serve(ctx context.Context, g *load.Generator, limit load.Limit) (*load.Result, error) {
	r, err := g.Run(ctx, limit)
	if err == nil && r.Failed() > 0 {
		err = fmt.Errorf("%d requests failed of a load that the server can serve: %v, such as: %w", r.Failed(), r.Errors, r.FirstError)
	}
	return r, err
}

// cores returns how many cores a CPU time kept busy.
func cores(cpu, elapsed time.Duration) float64 { return cpu.Seconds() / elapsed.Seconds() }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
