package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

// nearly is the share of the highest throughput that counts as equal to it: the
// rest is noise.
const nearly = 0.98

// best returns the level with the highest throughput, and the lowest load with
// nearly as much; beyond that more load only adds waiting.
func (r *run) best() (most, enough *result.Level) {
	most = slices.MaxFunc(r.levels, func(a, b *result.Level) int {
		return cmp.Compare(a.Merged.Throughput(), b.Merged.Throughput())
	})
	for _, l := range r.levels {
		if l.Merged.Throughput() >= nearly*most.Merged.Throughput() {
			return most, l
		}
	}
	return most, most
}

// lead summarises the run in a sentence.
func (r *run) lead() string {
	if len(r.levels) == 0 {
		return "No request was answered."
	}
	most, l := r.best()
	rate := chart.Number(most.Merged.Throughput()) + " infer/s"
	latency := fmt.Sprintf("p50 %s, p99 %s", span(l.Merged.Latency.Quantile(0.5)), span(l.Merged.Latency.Quantile(0.99)))
	switch {
	case len(r.levels) == 1:
		return fmt.Sprintf("%s at %s, %s.", rate, levelName(l.Load), latency)
	case l == most:
		return fmt.Sprintf("At most %s at %s, %s.", rate, levelName(l.Load), latency)
	}
	return fmt.Sprintf("At most %s; from %s on nearly as much, there with %s.", rate, levelName(l.Load), latency)
}

// facts are the figures that readers look for first.
func (r *run) facts() []fact {
	if len(r.levels) == 0 {
		return nil
	}
	most, l := r.best()
	at := "reached at"
	if l != most {
		at = "nearly that at"
	}
	list := []fact{
		{"most throughput", chart.Number(most.Merged.Throughput()) + " infer/s"},
		{at, levelName(l.Load)},
		{"p50 there", span(l.Merged.Latency.Quantile(0.5))},
		{"p99 there", span(l.Merged.Latency.Quantile(0.99))},
	}
	if s := l.Merged.Server; s != nil && s.Executions > 0 {
		list = append(list, fact{"mean batch there", rows(s.MeanBatch())})
	}
	if len(r.levels) > 2 {
		name := "not reached"
		if r.knee != nil {
			name = levelName(r.knee.Load)
		}
		list = append(list, fact{"knee", name})
	}
	if c := r.Capacity; c != nil && c.Rate > 0 {
		list = append(list, fact{"capacity for " + c.Goal, chart.Number(c.Rate) + " requests/s"})
	}
	failed, all := r.failed()
	return append(list, fact{"failed", fmt.Sprintf("%s of %s", chart.Number(float64(failed)), chart.Number(float64(all)))})
}

// rows returns a number of rows with its unit.
func rows(n float64) string {
	if n == 1 {
		return "1 row"
	}
	return chart.Number(n) + " rows"
}

// version returns the version that was measured: the one that was asked for, or the one that the server's statistics are of.
func (r *run) version() string {
	if r.Target.Version != "" {
		return r.Target.Version
	}
	for _, l := range r.levels {
		if s := l.Merged.Server; s != nil && s.Version != "" && !s.MixedVersion {
			return s.Version
		}
	}
	return "newest"
}

// failed counts the failures and all requests of every window.
func (r *run) failed() (failed, all int64) {
	for i := range r.Levels {
		for j := range r.Levels[i].Windows {
			w := &r.Levels[i].Windows[j]
			failed += w.Failed
			all += w.Failed + w.Requests
		}
	}
	return failed, all
}

// header says what was measured, where and how.
func (r *run) header() []fact {
	t, p := &r.Target, &r.Plan
	version := r.version()
	protocol := strings.ToUpper(t.Protocol)
	if t.Protocol == result.GRPC {
		protocol = "gRPC"
	}
	if t.Streaming {
		protocol += ", streaming"
	}
	list := []fact{
		{"Model", fmt.Sprintf("%s, version %s, max_batch_size %d", t.Model, version, t.MaxBatch)},
		{"Server", join(t.Server, t.URL, protocol)},
		{"Client", join(r.Tool, counted(r.Host.CPUs, "core"), r.Host.CPU, r.Host.OS+"/"+r.Host.Arch)},
		{"When", fmt.Sprintf("%s UTC, for %s", r.Started.UTC().Format(time.DateTime), r.Ended.Sub(r.Started).Round(100*time.Millisecond))},
		{"Requests", counted(p.BatchSize, "row") + " each"},
		{"Measured", r.method()},
	}
	if len(r.levels) > 0 && r.levels[0].Load.Open() {
		list = append(list, fact{"Latency", r.clock()})
	}
	return list
}

// counted writes a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func join(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), ", ")
}

func (r *run) clock() string {
	if r.Plan.LatencyClock == result.SendClock {
		return "counts from when a request was sent"
	}
	return "counts from when a request was due, so that waiting to be sent is part of it"
}

func (r *run) method() string {
	p := &r.Plan
	switch p.Mode {
	case result.RequestCount:
		return fmt.Sprintf("%d requests", p.RequestCount)
	case result.CountWindows:
		return fmt.Sprintf("windows of %d requests until three agree within %s %% in throughput and %s, %d at most", p.WindowCount, chart.Number(100*p.Stability), r.judgedName(), p.MaxTrials)
	default:
		return fmt.Sprintf("windows of %s until three agree within %s %% in throughput and %s, %d at most", span(p.Window+p.Window/5), chart.Number(100*p.Stability), r.judgedName(), p.MaxTrials)
	}
}

// warnings are those of the run and of its levels.
func (r *run) warnings() []string {
	list := slices.Clone(r.Warnings)
	for _, l := range r.levels {
		if !l.Stable && l.Reason != "" {
			list = append(list, levelName(l.Load)+": not stable, "+l.Reason)
		}
		for _, w := range l.Warnings {
			list = append(list, levelName(l.Load)+": "+w)
		}
	}
	return list
}
