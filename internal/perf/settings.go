package perf

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"shoal/internal/arrivals"
	"shoal/internal/client"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/input"
	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
)

// The kinds of service.
const (
	Triton     = "triton" // and whatever else speaks KServe v2
	TorchServe = "torchserve"
)

// A Part is a model that the measured one calls. An empty version is any.
type Part struct{ Model, Version string }

// ParseParts reads models with their versions: "a:3,b".
func ParseParts(text string) ([]Part, error) {
	var list []Part
	for word := range strings.SplitSeq(text, ",") {
		name, version, _ := strings.Cut(word, ":")
		if n, err := strconv.ParseInt(version, 10, 64); name == "" || version != "" && (err != nil || n < 1) {
			return nil, fmt.Errorf("%q is not a model, or a model, a colon and its version", word)
		}
		list = append(list, Part{name, version})
	}
	return list, nil
}

// Settings say what to measure and how.
type Settings struct {
	Tool    string
	Command []string

	Plan         result.Plan
	Mode         string // Concurrency, RequestRate, Intervals or Periodic
	Periodic     drive.PeriodicLoad
	Range        Range
	Distribution string
	Intervals    []time.Duration
	Seed         uint64
	// Replay is the trace whose requests are sent; SetReplay sets it.
	Replay *arrivals.Trace

	Service   string // Triton or TorchServe
	Address   client.Address
	Protocol  string
	Streaming bool
	Model     string
	Version   string
	// Composing are the models that the model calls, as far as its
	// configuration does not say that.
	Composing   []Part
	TLS         *tls.Config // nil: none
	Header      []client.Header
	Compression string // gRPC: a compressor's name
	// Sequences say how sequences are made for models that want them.
	Sequences drive.Sequences
	// SharedMemory passes tensors in shared memory; outputs of unknown size get
	// OutputSize bytes.
	SharedMemory bool
	OutputSize   int
	// Trace is sent to the server as its trace settings; empty: they stay.
	Trace map[string]string
	// Sync was asked for, where a sequence model would be measured async.
	Sync       bool
	Parameters []client.Parameter

	Input     input.Options
	InFormat  client.Format
	OutFormat client.Format

	// Goals are the goals of each level.
	Goals []judge.Goal
	// Capacity, when it has goals, asks for the highest rate that meets them; the
	// Range then bounds the search.
	Capacity []judge.Goal

	// ServerPID is the server's process; 0 looks for one that listens here.
	ServerPID int
	// Export keeps every request and answer for WriteExport.
	Export bool
	// MetricsURL is read every MetricsInterval for GPU metrics; empty: never.
	MetricsURL      string
	MetricsInterval time.Duration
}

// Check checks the settings. It reports all errors.
func (s *Settings) Check() error {
	var errs []error
	p := &s.Plan
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(s.Model == "", "-m is missing; it names the model")
	wrong(p.BatchSize < 1, "-b is %d, want 1 or more", p.BatchSize)
	wrong(p.Mode == result.TimeWindows && p.Window <= 0, "--measurement-interval is %v, want more than 0", p.Window)
	wrong(p.Mode == result.CountWindows && p.WindowCount < 1, "--measurement-request-count is %d, want 1 or more", p.WindowCount)
	wrong(!(p.Stability >= 0), "--stability-percentage is %v, want 0 or more", 100*p.Stability)
	wrong(p.MaxTrials < 1, "--max-trials is %d, want 1 or more", p.MaxTrials)
	wrong(p.Percentile < 0 || p.Percentile > 99, "--percentile is %d, want 1 to 99", p.Percentile)
	wrong(p.MaxOutstanding < 1, "--max-outstanding is %d, want 1 or more", p.MaxOutstanding)
	wrong(s.Range.Unbounded() && p.LatencyLimit == 0, "a range with the end 0 goes on until the latency is too high: give --latency-threshold as well")
	wrong(p.BinarySearch && (s.Range.Single || s.Range.Unbounded()), "--binary-search needs a range with a start and an end")
	wrong(p.BinarySearch && p.LatencyLimit == 0, "--binary-search looks for the highest level within --latency-threshold: give that as well")
	wrong((p.RequestCount > 0 || p.Warmup > 0) && !s.Range.Single && s.Range.Start != s.Range.End, "--request-count and --warmup-request-count are for a single level, not for a range")
	wrong(p.RequestCount > 0 && s.Mode == result.Concurrency && float64(p.RequestCount) < s.Range.Start, "--request-count is %d, want at least the concurrency, %.0f", p.RequestCount, s.Range.Start)
	wrong(s.Replay != nil && s.Service == TorchServe, "--replay makes inputs from shapes, which --service-kind=torchserve does not have")
	if s.Mode == result.Periodic {
		if err := s.Periodic.Check(); err != nil {
			errs = append(errs, err)
		}
		wrong(!s.Streaming, "--periodic-concurrency-range is for requests with many answers: give -i grpc --streaming as well")
		wrong(!s.Export, "--periodic-concurrency-range gives the times of all answers: name a file for them with --profile-export-file")
	}
	torch := s.Service == TorchServe
	wrong(torch && s.Protocol != result.HTTP, "--service-kind=torchserve is spoken over HTTP: leave -i out")
	wrong(torch && p.BatchSize != 1, "--service-kind=torchserve sends one input a request: -b must be 1")
	wrong(torch && s.Export, "--profile-export-file is not written for --service-kind=torchserve, whose answers have no tensors")
	wrong(torch && s.SharedMemory, "--shared-memory is not for --service-kind=torchserve, which takes bodies")
	wrong(s.SharedMemory && s.OutputSize < 1, "--output-shared-memory-size is %d, want 1 or more", s.OutputSize)
	wrong(s.SharedMemory && s.Replay != nil, "--shared-memory does not go with --replay, whose requests differ in size")
	wrong(s.SharedMemory && s.Export, "--profile-export-file wants the outputs in the answers: not with --shared-memory")
	wrong(s.Streaming && s.Protocol != result.GRPC, "--streaming is for gRPC: give -i grpc as well")
	wrong(len(s.Parameters) > 0 && s.Protocol != result.GRPC, "--request-parameter is for gRPC: give -i grpc as well")
	wrong(s.Compression != "" && s.Protocol != result.GRPC, "--grpc-compression-algorithm is for gRPC: give -i grpc as well")
	return errors.Join(errs...)
}
