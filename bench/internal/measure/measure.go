// Package measure loads a server for a moment and says what that came to: what a
// request cost the server, how long it took and how many ran together.
package measure

import (
	"context"
	"fmt"
	"os"
	"time"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
	"shoal/internal/load"
)

// A Sample is one run against one server. Times are in microseconds, CPU is for
// one request.
type Sample struct {
	Requests   int64   `json:"requests"`
	CPU        float64 `json:"cpu_us"`        // of the server process
	WorkerCPU  float64 `json:"worker_cpu_us"` // of the server's Workers
	ClientCPU  float64 `json:"client_cpu_us"`
	P50        float64 `json:"p50_us"`
	P95        float64 `json:"p95_us"`
	P99        float64 `json:"p99_us"`
	Throughput float64 `json:"requests_per_second"`
	MeanBatch  float64 `json:"mean_batch"` // rows to an execution, by the server's statistics
	Queue      float64 `json:"queue_us"`   // mean time in the server's queue, by its statistics
}

// A Load is what is done to a server.
type Load struct {
	Model            string // whose statistics are read; empty when the server has none
	Target           load.Target
	Callers          int
	Warmup, Duration time.Duration
}

// Run loads the server once: callers are connected and checked, a warm-up is
// thrown away, and the CPU clocks are read before and after the run, when nothing
// is under way. A request that fails is an error.
func Run(ctx context.Context, s *peer.Server, l Load) (Sample, error) {
	g, err := load.Open(ctx, l.Target, l.Callers)
	if err != nil {
		return Sample{}, fmt.Errorf("%s, %s: %w", s.Name, l.Model, err)
	}
	defer g.Close()
	if l.Warmup > 0 {
		if _, err := g.Run(ctx, load.Limit{Duration: l.Warmup}); err != nil {
			return Sample{}, err
		}
	}
	statsBefore, err := l.stats(ctx, s.HTTP)
	if err != nil {
		return Sample{}, err
	}
	before, err := readClocks(s)
	if err != nil {
		return Sample{}, err
	}
	result, err := g.Run(ctx, load.Limit{Duration: l.Duration})
	if err != nil {
		return Sample{}, err
	}
	after, err := readClocks(s)
	if err != nil {
		return Sample{}, err
	}
	statsAfter, err := l.stats(ctx, s.HTTP)
	if err != nil {
		return Sample{}, err
	}
	if result.Failed() > 0 {
		return Sample{}, fmt.Errorf("%s, %s: %d of %d requests failed: %v, such as: %w",
			s.Name, l.Model, result.Failed(), result.Failed()+result.Requests, result.Errors, result.FirstError)
	}
	n := float64(result.Requests)
	meanBatch, queue := statsAfter.since(statsBefore)
	return Sample{
		Requests:   result.Requests,
		CPU:        micros(after.server-before.server) / n,
		WorkerCPU:  micros(after.workers-before.workers) / n,
		ClientCPU:  micros(after.client-before.client) / n,
		P50:        micros(result.Latency.Quantile(0.5)),
		P95:        micros(result.Latency.Quantile(0.95)),
		P99:        micros(result.Latency.Quantile(0.99)),
		Throughput: result.Throughput(),
		MeanBatch:  meanBatch,
		Queue:      queue,
	}, nil
}

// stats reads the statistics of the load's model, if it has any.
func (l Load) stats(ctx context.Context, address string) (stats, error) {
	if l.Model == "" {
		return stats{}, nil
	}
	return readStats(ctx, address, l.Model)
}

// clocks are the CPU times of the processes that take part.
type clocks struct{ server, workers, client time.Duration }

// readClocks reads what is known: of a server that somebody else started the
// process is not.
func readClocks(s *peer.Server) (clocks, error) {
	client, err := load.Watch(os.Getpid()).CPU()
	if err != nil || s.Process == (load.Process{}) {
		return clocks{client: client}, err
	}
	server, err := s.Process.CPU()
	if err != nil {
		return clocks{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	return clocks{server: server, workers: load.CPU(s.Workers), client: client}, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Medians returns the median of every figure by itself.
func Medians(samples []Sample) Sample {
	figure := func(f func(Sample) float64) float64 {
		var all []float64
		for _, s := range samples {
			all = append(all, f(s))
		}
		return report.Median(all)
	}
	return Sample{
		Requests:   int64(figure(func(s Sample) float64 { return float64(s.Requests) })),
		CPU:        figure(func(s Sample) float64 { return s.CPU }),
		WorkerCPU:  figure(func(s Sample) float64 { return s.WorkerCPU }),
		ClientCPU:  figure(func(s Sample) float64 { return s.ClientCPU }),
		P50:        figure(func(s Sample) float64 { return s.P50 }),
		P95:        figure(func(s Sample) float64 { return s.P95 }),
		P99:        figure(func(s Sample) float64 { return s.P99 }),
		Throughput: figure(func(s Sample) float64 { return s.Throughput }),
		MeanBatch:  figure(func(s Sample) float64 { return s.MeanBatch }),
		Queue:      figure(func(s Sample) float64 { return s.Queue }),
	}
}
