package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/result"
)

// A run is what one run of a tool came to. Times are in microseconds.
type run struct {
	Throughput float64 `json:"throughput"`
	Requests   float64 `json:"requests"`
	P50        float64 `json:"p50_us"`
	P95        float64 `json:"p95_us"`
	P99        float64 `json:"p99_us"`
	// CPU is the tool's own, a request; the whole process counts.
	CPU   float64 `json:"client_cpu_us"`
	RSSMB float64 `json:"max_rss_mb"`

	latency *load.Histogram // of all its requests; nil when the tool was not asked for it
	result  *result.Result
}

// execute runs a tool and returns what it printed and took.
func execute(ctx context.Context, env []string, args ...string) (out string, cpu time.Duration, rssMB float64, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", 0, 0, fmt.Errorf("%s: %w\n%s%s", cmd, err, stdout.Bytes(), stderr.Bytes())
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		rssMB = float64(usage.Maxrss) * 1024 / 1e6
	}
	return stdout.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), rssMB, nil
}

// ours runs shoal perf.
func ours(ctx context.Context, o options, env []string, prefix []string, args ...string) (run, error) {
	file := filepath.Join(o.work, "perf-run.json")
	args = append(append(append([]string(nil), prefix...), o.shoal, "perf", "--json", file, "--allow-unstable"), args...)
	_, cpu, rss, err := execute(ctx, env, args...)
	if err != nil {
		return run{}, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return run{}, err
	}
	measured, err := result.Parse(data)
	if err != nil {
		return run{}, err
	}
	if len(measured.Levels) != 1 || measured.Levels[0].Merged == nil {
		return run{}, errors.New("the run has no level")
	}
	w := measured.Levels[0].Merged
	us := func(q float64) float64 { return float64(w.Latency.Quantile(q)) / 1e3 }
	r := run{Throughput: w.Throughput(), Requests: float64(w.Requests), P50: us(0.5), P95: us(0.95), P99: us(0.99), RSSMB: rss, latency: w.Latency, result: measured}
	r.CPU = float64(cpu.Microseconds()) / r.Requests
	return r, nil
}

var requestCount = regexp.MustCompile(`(?m)^ {4}Request count: (\d+)$`)

// theirs runs perf_analyzer. With export it also tells of every request, which
// costs it some.
func theirs(ctx context.Context, o options, export bool, args ...string) (run, error) {
	file := filepath.Join(o.work, "perf-run.csv")
	env := []string{"LD_LIBRARY_PATH=" + filepath.Join(o.analyzer, "lib")}
	args = append([]string{filepath.Join(o.analyzer, "perf_analyzer"), "-f", file}, args...)
	exported := filepath.Join(o.work, "perf-run-export.json")
	if export {
		_ = os.Remove(exported) // it writes no file that is there
		args = append(args, "--profile-export-file", exported)
	}
	out, cpu, rss, err := execute(ctx, env, args...)
	if err != nil {
		return run{}, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return run{}, err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	count := requestCount.FindStringSubmatch(out)
	if err != nil || len(rows) != 2 || count == nil {
		return run{}, fmt.Errorf("perf_analyzer's report is not as it was: %w\n%s%s", err, text, out)
	}
	r := run{RSSMB: rss}
	for to, name := range map[*float64]string{&r.Throughput: "Inferences/Second", &r.P50: "p50 latency", &r.P95: "p95 latency", &r.P99: "p99 latency"} {
		for i, column := range rows[0] {
			if column == name {
				*to, err = strconv.ParseFloat(rows[1][i], 64)
			}
		}
		if err != nil || *to == 0 {
			return run{}, fmt.Errorf("perf_analyzer's CSV has no %q: %w\n%s", name, err, text)
		}
	}
	if r.Requests, err = strconv.ParseFloat(count[1], 64); err != nil {
		return run{}, err
	}
	if export {
		if r.latency, err = readExport(exported); err != nil {
			return run{}, err
		}
	}
	r.CPU = float64(cpu.Microseconds()) / r.Requests
	return r, nil
}

// readExport returns the latencies of a file that perf_analyzer wrote.
func readExport(path string) (*load.Histogram, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Experiments []struct {
			Requests []struct {
				Timestamp int64
				Responses []int64 `json:"response_timestamps"`
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("perf_analyzer's export: %w", err)
	}
	h := &load.Histogram{}
	for _, e := range file.Experiments {
		for _, r := range e.Requests {
			if n := len(r.Responses); n > 0 {
				h.Record(time.Duration(r.Responses[n-1] - r.Timestamp))
			}
		}
	}
	if h.Count() == 0 {
		return nil, errors.New("perf_analyzer's export has no requests")
	}
	return h, nil
}
