package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/load"
)

// tutorials are the commands of tutorials and guides, with a fixture for their
// model and its input for theirs.
var tutorials = []string{
	"-m curve_flat -b 2 --shape INPUT0:16 --concurrency-range 2:16:2 --percentile=95",
	"-m curve_flat -b 8 --shape INPUT0:16 --concurrency-range 64 --percentile=95",
	"-m curve_flat -b 8 --shape INPUT0:16 --concurrency-range 2 --percentile=95",
	"-m curve_flat --percentile=95 --concurrency-range 1:4",
	"-m curve_flat --percentile=95 --concurrency-range 1:8",
	"-m curve_flat --percentile=95 --concurrency-range 8",
	"-m curve_flat --percentile=95 --concurrency-range 16",
	"-m curve_flat --concurrency-range 1:4",
	"-m curve_flat --collect-metrics",
	"-m curve_flat --collect-metrics --concurrency-range=2:16:2",
	"-m curve_flat",
	"-m varied -b 4 --shape INPUT0:3",
	"-m curve_flat --concurrency-range 1:4 -f perf.csv",
}

// commands runs them with short windows that need not agree.
func commands(ctx context.Context, b *bench) (string, bool, error) {
	var failed []string
	for _, text := range tutorials {
		args := append([]string{"perf"}, strings.Fields(text)...)
		if i := slices.Index(args, "-f"); i > 0 {
			args[i+1] = filepath.Join(os.TempDir(), fmt.Sprintf("shoal-criteria-%d.csv", os.Getpid()))
			defer func() { _ = os.Remove(args[i+1]) }()
		}
		out, stderr, code, err := b.run(ctx, append(args, "-u", b.server.HTTP, "-p", "100", "-s", "900")...)
		if err != nil {
			return "", false, err
		}
		if code != 0 || !strings.Contains(out, "Inferences/Second vs. Client") {
			failed = append(failed, fmt.Sprintf("%s: exit %d %s", text, code, stderr))
		}
	}
	return fmt.Sprintf("%d of %d commands as they should %s", len(tutorials)-len(failed), len(tutorials), strings.Join(failed, "; ")), len(failed) == 0, nil
}

// csvHeader is perf_analyzer's, of a sweep with statistics and --verbose-csv.
const csvHeader = "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency,request/response,response wait\n"

// layout looks at the files that other tools read.
func layout(ctx context.Context, b *bench) (string, bool, error) {
	dir, err := os.MkdirTemp("", "shoal-criteria-")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	csv, export := filepath.Join(dir, "out.csv"), filepath.Join(dir, "out.json")
	out, stderr, code, err := b.run(ctx, "perf", "-m", "curve_flat", "-u", b.server.HTTP, "-p", "200", "-s", "900", "-f", csv, "--verbose-csv", "--profile-export-file", export)
	if err != nil || code != 0 {
		return "", false, fmt.Errorf("exit code %d: %s %w", code, stderr, err)
	}
	table, err := os.ReadFile(csv)
	if err != nil {
		return "", false, err
	}
	head, _, _ := strings.Cut(string(table), "\n")
	fields, err := exportFields(export)
	if err != nil {
		return "", false, err
	}
	lines := 0
	for _, want := range []string{"*** Measurement Settings ***", "  Client: \n", "    Request count: ", "    Throughput: ", "    Avg latency: ", "    p99 latency: ", "    Avg HTTP time: ", "  Server: \n", "    Inference count: ", "    Execution count: ", "    Successful request count: ", "    Avg request latency: "} {
		if strings.Contains(out, want) {
			lines++
		}
	}
	ok := head+"\n" == csvHeader && fields && lines == 12
	return fmt.Sprintf("CSV header equal: %v; export fields: %v; %d of 12 lines", head+"\n" == csvHeader, fields, lines), ok, nil
}

// exportFields says whether the profile export has perf_analyzer's fields.
func exportFields(path string) (bool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var file struct {
		Experiments []struct {
			Experiment map[string]any
			Requests   []map[string]any
			Boundaries []int64 `json:"window_boundaries"`
		}
		Version     *string
		ServiceKind string `json:"service_kind"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return false, err
	}
	if file.Version == nil || file.ServiceKind != "triton" || len(file.Experiments) != 1 || len(file.Experiments[0].Requests) == 0 {
		return false, nil
	}
	e := file.Experiments[0]
	for _, name := range []string{"timestamp", "request_inputs", "response_timestamps", "response_outputs"} {
		if _, ok := e.Requests[0][name]; !ok {
			return false, nil
		}
	}
	return len(e.Boundaries) > 1 && e.Experiment["mode"] == "concurrency", nil
}

// poisson looks at the gaps between requests as they were sent.
func poisson(ctx context.Context, b *bench) (string, bool, error) {
	dir, err := os.MkdirTemp("", "shoal-criteria-")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	export := filepath.Join(dir, "out.json")
	_, stderr, code, err := b.run(ctx, "perf", "-m", "curve_flat", "-u", b.server.HTTP, "--request-rate-range", "500", "--request-distribution", "poisson",
		"--request-count", "10001", "--profile-export-file", export)
	if err != nil || code != 0 {
		return "", false, fmt.Errorf("exit code %d: %s %w", code, stderr, err)
	}
	data, err := os.ReadFile(export)
	if err != nil {
		return "", false, err
	}
	var file struct {
		Experiments []struct{ Requests []struct{ Timestamp int64 } }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return "", false, err
	}
	var times []int64
	for _, r := range file.Experiments[0].Requests {
		times = append(times, r.Timestamp)
	}
	slices.Sort(times)
	var sum, squares float64
	for i := range times[1:] {
		gap := float64(times[i+1] - times[i])
		sum, squares = sum+gap, squares+gap*gap
	}
	n := float64(len(times) - 1)
	cv := math.Sqrt(squares/n-sum/n*sum/n) / (sum / n)
	return fmt.Sprintf("coefficient of variation %.3f over %.0f gaps as they were sent", cv, n), cv >= 0.95 && cv <= 1.05 && n == 10_000, nil
}

// histogram holds quantiles of a million values against sorting.
func histogram(context.Context, *bench) (string, bool, error) {
	rng := rand.New(rand.NewPCG(9, 9))
	var h load.Histogram
	values := make([]time.Duration, 1_000_000)
	for i := range values {
		values[i] = time.Duration(math.Exp(rng.NormFloat64() + 14))
		h.Record(values[i])
	}
	timed := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			h.Record(values[i%len(values)])
		}
	})
	h = load.Histogram{}
	for _, v := range values {
		h.Record(v)
	}
	slices.Sort(values)
	worst := 0.0
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999} {
		want := values[int(math.Ceil(q*float64(len(values))))-1]
		worst = max(worst, math.Abs(float64(h.Quantile(q))/float64(want)-1))
	}
	ns, allocs := float64(timed.T.Nanoseconds())/float64(timed.N), timed.AllocsPerOp()
	return fmt.Sprintf("worst quantile off by %.3f%%; %.1f ns and %d allocations a record", 100*worst, ns, allocs), worst <= 0.001 && ns <= 60 && allocs == 0, nil
}
