package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"shoal/internal/perf/result"
)

const (
	// heavyClient is the share of the machine's CPU beyond which the generator
	// may distort the measurement of a server on the same machine.
	heavyClient = 0.25
	// busyClient is the share of a closed loop's time that the client may take
	// between an answer and the next request.
	busyClient = 0.5
)

// extra prints lines that perf_analyzer does not have, where they are useful.
func (r *Report) extra(l *result.Level, w *result.Window, line func(string, ...any)) {
	if !l.Stable && l.Reason != "" {
		line("| unstable: %s; spread of the windows: throughput %s, latency %s", l.Reason, result.Percent(l.Spread.Throughput), result.Percent(l.Spread.Latency))
	} else if r.Verbose && len(l.Windows) > 1 {
		line("| spread of the windows: throughput %s, latency %s", result.Percent(l.Spread.Throughput), result.Percent(l.Spread.Latency))
	}
	r.leftOut(l, line)
	if r.Verbose {
		for _, text := range intervals(l) {
			line("| %s", text)
		}
	}
	if l.Load.Open() {
		r.clocks(w, line)
		line("| send lag: p50 %d usec, p99 %d usec, max %d usec; most in flight %d (limit %d)",
			micros(w.SendLag.Quantile(0.5)), micros(w.SendLag.Quantile(0.99)), micros(w.SendLag.Max()), w.MaxInFlight, r.Plan.MaxOutstanding)
	}
	if r.Verbose {
		line("| p99.9 latency: %d usec, max %d usec", micros(w.Latency.Quantile(0.999)), micros(w.Latency.Max()))
		line("| CPU: %s", r.cpu(w))
	}
	r.errors(w, line)
	r.goals(l, line)
	for _, text := range l.Warnings {
		line("| warning: %s", text)
	}
	if share := w.ClientShare(r.Host.CPUs); r.Target.ServerPID > 0 && share > heavyClient {
		line("| warning: this client takes %.0f%% of the machine that it shares with the server", 100*share)
	}
}

// leftOut prints which windows do not count.
func (r *Report) leftOut(l *result.Level, line func(string, ...any)) {
	for i := range l.Windows {
		if why := l.Windows[i].WarmUp; why != "" {
			line("| warm-up: window %d of %d is left out, %s", i+1, len(l.Windows), why)
		}
	}
	if n := len(result.LastWindows(l.Windows)); r.Verbose && n < len(l.Windows) {
		line("| the last %d of %d windows count", n, len(l.Windows))
	}
}

// clocks prints where latency begins, and the latency by the other clock.
func (r *Report) clocks(w *result.Window, line func(string, ...any)) {
	text, other, from := "latency counts from when a request was due", w.FromSend, "when it was sent"
	if r.Plan.LatencyClock == result.SendClock {
		text, other, from = "latency counts from when a request was sent, not from when it was due", w.FromSchedule, "when it was due"
	}
	if other != nil {
		text += fmt.Sprintf("; from %s: p50 %d usec, p99 %d usec", from, micros(other.Quantile(0.5)), micros(other.Quantile(0.99)))
	}
	line("| %s", text)
}

// intervals prints the interval of each figure.
func intervals(l *result.Level) []string {
	var known, unknown []string
	for i := range l.Figures {
		switch f := &l.Figures[i]; {
		case !f.Known():
			unknown = append(unknown, f.Name)
		case f.Name == result.FigureThroughput:
			known = append(known, fmt.Sprintf("throughput %s to %s infer/sec", result.Number(f.Low), result.Number(f.High)))
		default:
			known = append(known, fmt.Sprintf("%s %d to %d usec", f.Name, int64(f.Low)/1000, int64(f.High)/1000))
		}
	}
	var lines []string
	if len(known) > 0 {
		lines = append(lines, "95% interval: "+strings.Join(known, ", "))
	}
	if len(unknown) > 0 {
		lines = append(lines, "too little was measured for an interval of "+strings.Join(unknown, ", "))
	}
	return lines
}

// errors lists the failures by their cause, the most frequent first.
func (r *Report) errors(w *result.Window, line func(string, ...any)) {
	if w.Failed == 0 {
		return
	}
	line("| errors: %d of %d requests (%s)", w.Failed, w.Failed+w.Requests, result.Percent(w.FailedShare()))
	causes := slices.SortedFunc(maps.Keys(w.Errors), func(a, b string) int {
		if n := w.Errors[b] - w.Errors[a]; n != 0 {
			return int(n)
		}
		return strings.Compare(a, b)
	})
	for _, cause := range causes {
		line("|   %d x %s", w.Errors[cause], oneLine(cause))
	}
}

// cpu prints the CPU time of a request in client and server.
func (r *Report) cpu(w *result.Window) string {
	text := fmt.Sprintf("client %s usec/request, %.0f%% of %d cores", perRequest(w, w.ClientCPU), 100*w.ClientShare(r.Host.CPUs), r.Host.CPUs)
	if r.Target.ServerPID > 0 {
		text += fmt.Sprintf("; server (pid %d) %s usec/request", r.Target.ServerPID, perRequest(w, w.ServerCPU))
	}
	return text
}

func perRequest(w *result.Window, cpu time.Duration) string {
	return fmt.Sprintf("%.1f", float64(w.Mean(cpu))/float64(time.Microsecond))
}

// goals prints which goals a level reached.
func (r *Report) goals(l *result.Level, line func(string, ...any)) {
	for _, g := range l.Goals {
		verdict := "FAIL"
		if g.Met {
			verdict = "pass"
		}
		line("| SLO %s: %s (%s)", g.Goal, verdict, g.Shown)
	}
}
