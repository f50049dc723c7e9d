package perf

import (
	"fmt"
	"time"
)

const (
	// heavyClient is the share of the machine beyond which the generator may
	// distort what it measures when the server runs on the same one.
	heavyClient = 0.25
	// exhausted is the share of its own cores beyond which the generator cannot
	// make more load.
	exhausted = 0.9
	// busyClient is the share of a closed loop's time that the client may take
	// between an answer and the next request.
	busyClient = 0.5
)

// Overhead returns the share of a closed loop's time in which its callers had
// nothing under way.
func (w *Window) Overhead(callers float64) float64 {
	total := float64(w.Duration) * callers
	if total <= 0 {
		return 0
	}
	return min(1, float64(w.Idle)/total)
}

// ClientShare returns the share of cpus that this process took.
func (w *Window) ClientShare(cpus int) float64 {
	if w.Duration <= 0 || cpus <= 0 {
		return 0
	}
	return float64(w.ClientCPU) / float64(w.Duration) / float64(cpus)
}

// FailedShare returns the share of requests that failed.
func (w *Window) FailedShare() float64 {
	if w.Failed == 0 {
		return 0
	}
	return float64(w.Failed) / float64(w.Failed+w.Requests)
}

// DelayedShare returns the share of requests that were sent late.
func (w *Window) DelayedShare() float64 {
	if w.Requests == 0 {
		return 0
	}
	return float64(w.Delayed) / float64(w.Requests)
}

// warnings says what makes a level's figures doubtful.
func warnings(p *Plan, l *Level, cpus int) []string {
	w := l.Merged
	if w == nil || w.Requests == 0 {
		return nil
	}
	var list []string
	if l.Load.Open() && w.MaxInFlight >= p.MaxOutstanding {
		list = append(list, fmt.Sprintf("all %d requests that may be under way were: the server does not keep up with the rate, or --max-outstanding is too low", p.MaxOutstanding))
	} else if lag := w.SendLag; lag != nil && lag.Quantile(0.99) > 10*time.Millisecond {
		list = append(list, fmt.Sprintf("this machine sends late (send lag p99 %d usec) though connections are free: the client is the bottleneck", lag.Quantile(0.99).Microseconds()))
	}
	if share := w.ClientShare(cpus); share > exhausted {
		list = append(list, fmt.Sprintf("this process takes %.0f%% of the CPU time that it may have: the client is the bottleneck, the server may do more", 100*share))
	}
	if w.Server != nil && w.Server.MixedVersion {
		list = append(list, "requests went to several versions of the model; the server's figures are of version "+w.Server.Version)
	}
	return list
}
