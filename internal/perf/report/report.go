package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"shoal/internal/perf/result"
)

// A Report prints a run as perf_analyzer does: the same lines, units and order.
// Additional lines begin with "|". It is an Observer; Summary ends it.
type Report struct {
	Out     io.Writer // the report
	Err     io.Writer // what went wrong
	Verbose bool
	Plan    *result.Plan
	Target  *result.Target
	Host    result.Host
	// Sequences means that requests are parts of sequences.
	Sequences bool
}

// Begin prints which level is measured.
func (r *Report) Begin(l result.Load) { fmt.Fprintln(r.Out, heading(l)) }

func heading(l result.Load) string {
	if !l.Open() {
		return "Request concurrency: " + result.Number(l.Value)
	}
	return "Request Rate: " + result.Number(l.Value) + " inference requests per seconds"
}

// Progress prints nothing.
func (r *Report) Progress(result.Progress) {}

// Window prints a line for each window with -v.
func (r *Report) Window(trial int, w *result.Window) {
	if !r.Verbose || r.Plan.RequestCount > 0 {
		return
	}
	fmt.Fprintf(r.Out, "  Pass [%d] throughput: %s infer/sec. ", trial, result.Number(w.Throughput()))
	if p := r.Plan.Percentile; p > 0 {
		fmt.Fprintf(r.Out, "p%d latency: %d usec\n", p, r.Plan.Judged(w).Microseconds())
		return
	}
	fmt.Fprintf(r.Out, "Avg latency: %d usec (std %d usec). \n", w.Latency.Mean().Microseconds(), w.Latency.Deviation().Microseconds())
}

// End prints the result of a level. A level over the latency limit has no
// figures.
func (r *Report) End(l *result.Level) {
	if l.OverLimit {
		fmt.Fprintf(r.Err, "Measured latency went over the set limit of %d msec. \n", r.Plan.LatencyLimit.Milliseconds())
		return
	}
	w := l.Merged
	if w == nil || w.Requests == 0 {
		return
	}
	if !l.Stable && r.Plan.RequestCount == 0 && l.Reason != "" && l.Reason != result.CutShort {
		fmt.Fprintf(r.Err, "Failed to obtain stable measurement within %d measurement windows for %s. Please try to increase the --measurement-interval.\n",
			len(l.Windows), strings.ToLower(l.Load.Name())+" "+result.Number(l.Load.Value))
	}
	r.client(l, w)
	if w.Server != nil {
		fmt.Fprintln(r.Out, "  Server: ")
		r.server(w.Server, w.Parts, "    ")
	}
	fmt.Fprintln(r.Out)
	if w.GPU != nil {
		r.gpu(w.GPU)
	}
	if !l.Load.Open() && w.Overhead(l.Load.Value) > busyClient {
		fmt.Fprintln(r.Out, "[WARNING] Perf Analyzer is not able to keep up with the desired load. The results may not be accurate.")
	}
}

// client prints the client's figures.
func (r *Report) client(l *result.Level, w *result.Window) {
	line := func(format string, args ...any) { fmt.Fprintf(r.Out, "    "+format+"\n", args...) }
	fmt.Fprintln(r.Out, "  Client: ")
	line("Request count: %d", w.Requests)
	if w.DelayedShare() > 0.01 {
		line("Avg send request rate: %.2f infer/sec", float64(w.Requests+w.Failed)/w.Duration.Seconds()*float64(r.Plan.BatchSize))
		line("[WARNING] Perf Analyzer was not able to keep up with the desired request rate. %.2f%% of the requests were delayed. ", 100*w.DelayedShare())
	}
	if r.Sequences {
		line("Sequence count: %d (%s seq/sec)", w.Sequences, result.Number(result.PerSecond(w.Sequences, w.Duration)))
	}
	line("Throughput: %s infer/sec", result.Number(w.Throughput()))
	if w.Responses > w.Requests {
		line("Response Throughput: %s infer/sec", result.Number(result.PerSecond(w.Responses, w.Duration)))
	}
	if r.Verbose && !l.Load.Open() {
		line("Avg client overhead: %.2f%%", 100*w.Overhead(l.Load.Value))
	}
	if r.Plan.Percentile == 0 {
		line("Avg latency: %d usec (standard deviation %d usec)", w.Latency.Mean().Microseconds(), w.Latency.Deviation().Microseconds())
	}
	for _, p := range result.Percentiles(r.Plan) {
		line("p%d latency: %d usec", p, w.Latency.Quantile(float64(p)/100).Microseconds())
	}
	line("%s", r.parts(w))
	r.extra(l, w, line)
}

// parts prints the parts of a request's time at the client.
func (r *Report) parts(w *result.Window) string {
	send, wait, receive := w.Mean(w.Send), w.Mean(w.Wait), w.Mean(w.Receive)
	total := (send + wait + receive).Microseconds()
	name, away, back, both := "HTTP", "send", "receive", "send/recv"
	if r.Target.Protocol == result.GRPC {
		name, away, back, both = "gRPC", "marshal", "unmarshal", "(un)marshal request/response"
	}
	if r.Verbose {
		s, b := send.Microseconds(), receive.Microseconds()
		return fmt.Sprintf("Avg %s time: %d usec (%s %d usec + response wait %d usec + %s %d usec)", name, total, away, s, total-s-b, back, b)
	}
	own := (send + receive).Microseconds()
	return fmt.Sprintf("Avg %s time: %d usec (%s %d usec + response wait %d usec)", name, total, both, own, total-own)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func micros(d time.Duration) int64 { return d.Microseconds() }

// server prints the server's statistics of the same time, and those of the models
// that the model calls.
func (r *Report) server(s *result.ServerStats, parts []result.PartStats, indent string) {
	line := func(format string, args ...any) { fmt.Fprintf(r.Out, indent+format+"\n", args...) }
	line("Inference count: %d", s.Inferences)
	line("Execution count: %d", s.Executions)
	cached := s.CacheHit.Count > 0 || s.CacheMiss.Count > 0
	if cached {
		line("Cache hit count: %d", s.CacheHit.Count)
		line("Cache miss count: %d", s.CacheMiss.Count)
	}
	line("Successful request count: %d", s.Success.Count)
	total, queue := micros(s.Success.Mean()), micros(s.Queue.Mean())
	in, infer, out := micros(s.Input.Mean()), micros(s.Infer.Mean()), micros(s.Output.Mean())
	switch {
	case len(parts) > 0:
		r.composed(s, parts, line)
	case !cached:
		line("Avg request latency: %d usec (overhead %d usec + queue %d usec + compute input %d usec + compute infer %d usec + compute output %d usec)",
			total, max(0, total-queue-in-infer-out), queue, in, infer, out)
	default:
		r.cache(s, line)
	}
	if r.Verbose && s.Executions > 0 {
		line("| mean batch: %.2f rows", s.MeanBatch())
	}
	if len(parts) == 0 {
		return
	}
	fmt.Fprintln(r.Out)
	line("Composing models: ")
	for i := range parts {
		line("%s, version: %s", parts[i].Model, parts[i].Version)
		r.server(&parts[i].ServerStats, nil, indent+"  ")
	}
}

// composed prints the latency of a model that is made of others: theirs, added up.
func (r *Report) composed(s *result.ServerStats, parts []result.PartStats, line func(string, ...any)) {
	var queue, compute time.Duration
	for i := range parts {
		p := &parts[i]
		queue += p.Queue.Mean()
		compute += p.Input.Mean() + p.Infer.Mean() + p.Output.Mean() + p.CacheHit.Mean() + p.CacheMiss.Mean()
	}
	total := s.Success.Mean()
	line("Avg request latency: %d usec (overhead %d usec + queue %d usec + compute %d usec)",
		micros(total), micros(max(0, total-queue-compute)), micros(queue), micros(compute))
}

// cache prints the latency of a model whose answers are cached.
func (r *Report) cache(s *result.ServerStats, line func(string, ...any)) {
	total, queue := micros(s.Success.Mean()), micros(s.Queue.Mean())
	requests := max(1, s.Success.Count)
	hit, miss := int64(s.CacheHit.Ns/requests/1000), int64((s.CacheMiss.Ns+s.Input.Ns+s.Infer.Ns+s.Output.Ns)/requests/1000)
	line("Avg request latency: %d usec (overhead %d usec + queue %d usec + cache hit/miss %d usec)", total, max(0, total-queue-hit-miss), queue, hit+miss)
	line("  Average Cache Hit Latency: %d usec", micros(s.CacheHit.Mean()))
	compute := s.Input.Mean() + s.Infer.Mean() + s.Output.Mean()
	line("  Average Cache Miss Latency: %d usec (cache lookup/insertion %d usec + compute input %d usec + compute infer %d usec + compute output %d usec)",
		micros(s.CacheMiss.Mean()+compute), micros(s.CacheMiss.Mean()), micros(s.Input.Mean()), micros(s.Infer.Mean()), micros(s.Output.Mean()))
}

// gpu prints the server's GPU metrics.
func (r *Report) gpu(m *result.GPUMetrics) {
	fmt.Fprintln(r.Out, "  Server Prometheus Metrics: ")
	for _, part := range []struct {
		title, unit string
		values      map[string]float64
		scale       float64
	}{
		{"Avg GPU Utilization", "%", m.Utilization, 100},
		{"Avg GPU Power Usage", " watts", m.Power, 1},
		{"Max GPU Memory Usage", " bytes", m.MemoryUsed, 1},
		{"Total GPU Memory", " bytes", m.MemoryTotal, 1},
	} {
		fmt.Fprintf(r.Out, "    %s:\n", part.title)
		for _, gpu := range slices.Sorted(maps.Keys(part.values)) {
			fmt.Fprintf(r.Out, "      %s : %s%s\n", gpu, result.Number(part.scale*part.values[gpu]), part.unit)
		}
	}
}

// Summary prints a line for each level.
func (r *Report) Summary(run *result.Result) {
	what := "Average"
	if p := r.Plan.Percentile; p > 0 {
		what = fmt.Sprintf("p%d", p)
	}
	levels := run.Reported()
	if len(levels) > 0 {
		fmt.Fprintf(r.Out, "Inferences/Second vs. Client %s Batch Latency\n", what)
	}
	for _, l := range levels {
		fmt.Fprintf(r.Out, "%s: %s, throughput: %s infer/sec, latency %d usec", l.Load.Name(), result.Number(l.Load.Value), result.Number(l.Merged.Throughput()), micros(r.Plan.Judged(l.Merged)))
		if !l.Stable && l.Reason != "" {
			fmt.Fprintf(r.Out, " (unstable: %s)", l.Reason)
		}
		fmt.Fprintln(r.Out)
	}
	r.capacity(run.Capacity)
	for _, text := range run.Warnings {
		fmt.Fprintf(r.Err, "WARNING: %s\n", text)
	}
}
