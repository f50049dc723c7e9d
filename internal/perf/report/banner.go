package report

import (
	"fmt"
	"io"
	"strings"

	"shoal/internal/perf/result"
)

// A Banner is what is printed before a run.
type Banner struct {
	Plan         *result.Plan
	Service      string
	Mode         string // of the load
	Distribution string
	Decoupled    bool
}

// Write prints how the run measures. The lines are perf_analyzer's, which scripts
// read.
func (s *Banner) Write(out io.Writer) {
	p := s.Plan
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("*** Measurement Settings ***")
	line("  Batch size: %d", p.BatchSize)
	line("  Service Kind: %s", strings.ToUpper(s.Service))
	if p.Warmup > 0 {
		line("  Sending %d warmup requests", p.Warmup)
	}
	if p.RequestCount > 0 {
		line("  Sending %d benchmark requests", p.RequestCount)
	} else {
		line("  Using %q mode for stabilization", p.Mode)
		line("  Stabilizing using %s", stabilizing(p))
		if p.Mode == result.CountWindows {
			line("  Minimum number of samples in each window: %d", p.WindowCount)
		} else {
			line("  Measurement window: %d msec", p.Window.Milliseconds())
		}
	}
	if p.Ranged {
		line("  Latency limit: %d msec", p.LatencyLimit.Milliseconds())
		switch {
		case p.Limit == 0:
		case s.Mode == result.Concurrency:
			line("  Concurrency limit: %s concurrent requests", result.Number(p.Limit))
		default:
			line("  Request Rate limit: %s requests per seconds", result.Number(p.Limit))
		}
	}
	switch s.Distribution {
	case result.Constant:
		line("  Using uniform distribution on request generation")
	case result.Poisson:
		line("  Using poisson distribution on request generation")
	case result.Replay:
		line("  | Replaying %d arrivals of %s at %sx", p.RequestCount, p.Replay, result.Number(p.ReplaySpeed))
	}
	if p.BinarySearch {
		line("  Using Binary Search algorithm")
	}
	if p.Async {
		line("  Using asynchronous calls for inference")
	} else {
		line("  Using synchronous calls for inference")
	}
	if s.Decoupled {
		line("  Detected decoupled model, using the first response for measuring latency")
	}
	line("")
}

func stabilizing(p *result.Plan) string {
	switch {
	case p.Percentile > 0:
		return fmt.Sprintf("p%dlatency and throughput", p.Percentile) // without a blank, as scripts expect it
	case p.Async:
		return "average throughput"
	default:
		return "average latency and throughput"
	}
}
