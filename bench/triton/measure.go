package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"shoal/bench/internal/peer"
	"shoal/internal/load"
)

// A sample is one run of one row against one server. Times are in microseconds,
// CPU is for one request.
type sample struct {
	Requests   int64   `json:"requests"`
	CPU        float64 `json:"cpu_us"`        // of the server process
	WorkerCPU  float64 `json:"worker_cpu_us"` // of the processes it started
	ClientCPU  float64 `json:"client_cpu_us"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Throughput float64 `json:"requests_per_second"`
}

// measure loads the server once: callers are connected and checked, a warm-up is
// thrown away, and the CPU clocks are read before and after the run, when nothing
// is under way.
func measure(ctx context.Context, s *peer.Server, r row, warmup, duration time.Duration) (sample, error) {
	target, err := r.payload.target(s, r.payload.model)
	if err != nil {
		return sample{}, err
	}
	g, err := load.Open(ctx, target, r.callers)
	if err != nil {
		return sample{}, fmt.Errorf("%s, %s: %w", s.Name, r.name(), err)
	}
	defer g.Close()
	if warmup > 0 {
		if _, err := g.Run(ctx, load.Limit{Duration: warmup}); err != nil {
			return sample{}, err
		}
	}
	before, err := readClocks(s)
	if err != nil {
		return sample{}, err
	}
	result, err := g.Run(ctx, load.Limit{Duration: duration})
	if err != nil {
		return sample{}, err
	}
	after, err := readClocks(s)
	if err != nil {
		return sample{}, err
	}
	if result.Failed() > 0 {
		return sample{}, fmt.Errorf("%s, %s: %d of %d requests failed: %v, such as: %w",
			s.Name, r.name(), result.Failed(), result.Failed()+result.Requests, result.Errors, result.FirstError)
	}
	n := float64(result.Requests)
	return sample{
		Requests:   result.Requests,
		CPU:        micros(after.server-before.server) / n,
		WorkerCPU:  micros(after.workers-before.workers) / n,
		ClientCPU:  micros(after.client-before.client) / n,
		P50:        micros(result.Latency.Quantile(0.5)),
		P99:        micros(result.Latency.Quantile(0.99)),
		Throughput: result.Throughput(),
	}, nil
}

// clocks are the CPU times of the processes that take part.
type clocks struct{ server, workers, client time.Duration }

func readClocks(s *peer.Server) (clocks, error) {
	server, err := s.Process.CPU()
	if err != nil {
		return clocks{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	client, err := load.Watch(os.Getpid()).CPU()
	return clocks{server: server, workers: load.CPU(s.Workers), client: client}, err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
