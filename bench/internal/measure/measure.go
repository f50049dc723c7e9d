// Package measure loads a server for a moment and says what that came to: what a
// request cost the server, how long it took and how many ran together.
package measure

import (
	"context"
	"errors"
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
	Infer      float64 `json:"infer_us"`   // mean time in the model for one request, by the server's statistics
	Stolen     float64 `json:"stolen"`     // share of the cores' time that the host gave to other machines
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
	return observe(ctx, s, l.Model, func() (Outcome, error) {
		before, err := load.Watch(os.Getpid()).CPU()
		if err != nil {
			return Outcome{}, err
		}
		result, err := g.Run(ctx, load.Limit{Duration: l.Duration})
		if err != nil {
			return Outcome{}, err
		}
		after, err := load.Watch(os.Getpid()).CPU()
		if err != nil {
			return Outcome{}, err
		}
		if result.Failed() > 0 {
			return Outcome{}, fmt.Errorf("%d of %d requests failed: %v, such as: %w",
				result.Failed(), result.Failed()+result.Requests, result.Errors, result.FirstError)
		}
		return Outcome{
			Requests: result.Requests, Throughput: result.Throughput(), ClientCPU: after - before,
			P50: result.Latency.Quantile(0.5), P95: result.Latency.Quantile(0.95), P99: result.Latency.Quantile(0.99),
		}, nil
	})
}

// ErrNoAnswer is the error of a run without an answer: it was too short, or the
// machine stood still.
var ErrNoAnswer = errors.New("no request was answered; raise --duration")

// An Outcome is what a load generator has seen of a run.
type Outcome struct {
	Requests      int64
	Throughput    float64       // requests answered a second
	ClientCPU     time.Duration // of the generator
	P50, P95, P99 time.Duration
}

// observe reads the server's clocks and the model's statistics before and after
// run, which loads the server.
func observe(ctx context.Context, s *peer.Server, model string, run func() (Outcome, error)) (Sample, error) {
	statsBefore, err := statsOf(ctx, s.HTTP, model)
	if err != nil {
		return Sample{}, err
	}
	before, err := readClocks(s)
	if err != nil {
		return Sample{}, err
	}
	host := readCPUTime()
	o, err := run()
	if err != nil {
		return Sample{}, fmt.Errorf("%s, %s: %w", s.Name, model, err)
	}
	stolen := readCPUTime().since(host)
	after, err := readClocks(s)
	if err != nil {
		return Sample{}, err
	}
	statsAfter, err := statsOf(ctx, s.HTTP, model)
	if err != nil {
		return Sample{}, err
	}
	n := float64(o.Requests)
	meanBatch, queue, infer := statsAfter.since(statsBefore)
	return Sample{
		Requests:   o.Requests,
		CPU:        micros(after.server-before.server) / n,
		WorkerCPU:  micros(after.workers-before.workers) / n,
		ClientCPU:  micros(o.ClientCPU) / n,
		P50:        micros(o.P50),
		P95:        micros(o.P95),
		P99:        micros(o.P99),
		Throughput: o.Throughput,
		MeanBatch:  meanBatch,
		Queue:      queue,
		Infer:      infer,
		Stolen:     stolen,
	}, nil
}

// statsOf reads the statistics of a model, if it has a name.
func statsOf(ctx context.Context, address, model string) (stats, error) {
	if model == "" {
		return stats{}, nil
	}
	return readStats(ctx, address, model)
}

// clocks are the CPU times of a server's processes.
type clocks struct{ server, workers time.Duration }

// readClocks reads what is known: of a server that somebody else started the
// process is not.
func readClocks(s *peer.Server) (clocks, error) {
	if s.Process == (load.Process{}) {
		return clocks{}, nil
	}
	server, err := s.Process.CPU()
	if err != nil {
		return clocks{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	return clocks{server: server, workers: load.CPU(s.Workers)}, nil
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
		Infer:      figure(func(s Sample) float64 { return s.Infer }),
		Stolen:     figure(func(s Sample) float64 { return s.Stolen }),
	}
}
