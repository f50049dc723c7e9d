package judge

import (
	"fmt"
	"time"

	"shoal/internal/perf/result"
)

// exhausted is the share of its own cores beyond which the generator cannot make
// more load.
const exhausted = 0.9

// Warnings lists reasons to doubt a level's figures.
func Warnings(p *result.Plan, l *result.Level, cpus int) []string {
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
