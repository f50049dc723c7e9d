package judge

import (
	"fmt"

	"shoal/internal/perf/result"
)

// A Verdict is the judgement of a level's windows so far.
type Verdict struct {
	Stable     bool
	Throughput bool // only the throughput is stable
	Over       bool // the latency exceeded the limit
	Spread     result.Spread
	Reason     string // why not stable
}

// Windows compares the windows that count.
func Windows(p *result.Plan, windows []result.Window) Verdict {
	last := result.LastWindows(windows)
	v := Verdict{Spread: p.SpreadOf(windows)}
	if len(last) < result.WindowsJudged {
		v.Reason = fmt.Sprintf("%d of %d windows", len(last), result.WindowsJudged)
		return v
	}
	silent := false
	for i := range last {
		silent = silent || last[i].Throughput() == 0
		v.Over = v.Over || p.LatencyLimit > 0 && p.Judged(&last[i]) >= p.LatencyLimit
	}
	v.Throughput = v.Spread.Throughput <= p.Stability
	v.Stable = v.Throughput && v.Spread.Latency <= p.Stability
	switch {
	case silent:
		v.Stable, v.Throughput = false, false
		v.Reason = "a window without answers"
	case !v.Throughput:
		v.Reason = fmt.Sprintf("throughput spread %s", result.Percent(v.Spread.Throughput))
	case !v.Stable:
		v.Reason = fmt.Sprintf("latency spread %s", result.Percent(v.Spread.Latency))
	}
	return v
}
