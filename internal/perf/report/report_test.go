package report

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"shoal/internal/load"
	"shoal/internal/perf/result"
)

// histogramOf returns a histogram of these latencies.
func histogramOf(ds ...time.Duration) *load.Histogram {
	h := &load.Histogram{}
	for _, d := range ds {
		h.Record(d)
	}
	return h
}

// settings are those of a run that a report tells of.
type settings struct {
	Mode, Distribution, Protocol string
	Plan                         result.Plan
}

// sample returns a window in which everything that is printed has a figure.
func sample(requests int) result.Window {
	w := result.Window{
		Duration: 2 * time.Second, Requests: int64(requests), Rows: int64(requests), Responses: int64(requests), Latency: histogramOf(),
		Send: time.Duration(requests) * 40 * time.Microsecond, Wait: time.Duration(requests) * 800 * time.Microsecond,
		Receive: time.Duration(requests) * 3 * time.Microsecond, Idle: time.Millisecond,
		Server: &result.ServerStats{
			Version: "1", Inferences: 7, Executions: 7, Success: result.Counted{Count: 7, Ns: 7 * 700_000}, Queue: result.Counted{Count: 7, Ns: 7 * 20_000},
			Input: result.Counted{Count: 7, Ns: 7 * 8_000}, Infer: result.Counted{Count: 7, Ns: 7 * 596_000}, Output: result.Counted{Count: 7, Ns: 7 * 15_000},
		},
	}
	for i := range requests {
		w.Latency.Record(time.Duration(i+1) * time.Millisecond)
	}
	return w
}

// leveled returns a stable level.
func leveled(mode string, value float64) result.Level {
	w := sample(20)
	l := result.Level{Load: result.Load{Mode: mode, Value: value}, Stable: true, Windows: []result.Window{w, w, w}, Merged: &w}
	if l.Load.Open() {
		w.FromSend, w.SendLag = w.Latency, histogramOf(1000)
	}
	return l
}

// over returns a level that went over the latency limit.
func over(value float64) result.Level {
	l := leveled(result.Concurrency, value)
	l.OverLimit = true
	return l
}

// plan returns a plan as the recordings have it, changed by edit.
func plan(edit func(*result.Plan)) result.Plan {
	p := result.Plan{BatchSize: 1, Mode: result.TimeWindows, Window: 800 * time.Millisecond, Stability: 0.9, MaxTrials: 5, MaxOutstanding: 512}
	if edit != nil {
		edit(&p)
	}
	return p
}

// print runs a result through banner, report and summary.
func print(s settings, verbose bool, levels ...result.Level) (out, stderr string) {
	var o, e bytes.Buffer
	(&Banner{Plan: &s.Plan, Service: "triton", Mode: s.Mode, Distribution: s.Distribution}).Write(&o)
	r := &Report{Out: &o, Err: &e, Verbose: verbose, Plan: &s.Plan, Target: &result.Target{Protocol: s.Protocol}, Host: result.Host{CPUs: 2}}
	for i := range levels {
		r.Begin(levels[i].Load)
		for j := range levels[i].Windows {
			r.Window(j+1, &levels[i].Windows[j])
		}
		r.End(&levels[i])
	}
	r.Summary(&result.Result{Plan: s.Plan, Levels: levels})
	return o.String(), e.String()
}

var figures = regexp.MustCompile(`\d+(\.\d+)?(e\+\d+)?`)

// layout keeps the words of a report and drops its figures and what is ours.
func layout(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "|") {
			lines = append(lines, figures.ReplaceAllString(line, "#"))
		}
	}
	return strings.Join(lines, "")
}

// TestReportHasPerfAnalyzersLayout compares with what the real tool printed for
// the same kind of run, line by line, blanks at the end included.
func TestReportHasPerfAnalyzersLayout(t *testing.T) {
	p95 := plan(func(p *result.Plan) { p.Percentile = 95 })
	ranged := plan(func(p *result.Plan) { p.Ranged, p.Limit = true, 4 })
	search := plan(func(p *result.Plan) {
		p.Ranged, p.Limit, p.BinarySearch, p.LatencyLimit, p.Window = true, 16, true, 5*time.Millisecond, 500*time.Millisecond
	})
	limited := plan(func(p *result.Plan) { p.Ranged, p.Limit, p.LatencyLimit = true, 8, 3*time.Millisecond })
	async := plan(func(p *result.Plan) { p.Async = true })
	counts := plan(func(p *result.Plan) { p.Mode, p.WindowCount = result.CountWindows, 500 })
	exact := plan(func(p *result.Plan) { p.Mode, p.RequestCount = result.RequestCount, 20 })
	withGPU := func(value float64) result.Level {
		l := leveled(result.Concurrency, value)
		l.Merged.GPU = &result.GPUMetrics{}
		return l
	}
	one := func(n float64) []result.Level { return []result.Level{leveled(result.Concurrency, n)} }
	for _, c := range []struct {
		file    string
		s       settings
		verbose bool
		levels  []result.Level
	}{
		{"http_sync_c8", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: plan(nil)}, false, one(8)},
		{"http_batch8", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: plan(nil)}, false, one(2)},
		{"http_json_tensors", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: plan(nil)}, false, one(4)},
		{"http_p95_stabilise", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: p95}, false, one(4)},
		{"http_count_windows", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: counts}, false, one(2)},
		{"http_request_count_export", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: exact}, false, one(2)},
		{"http_rate_500", settings{Mode: result.RequestRate, Distribution: result.Constant, Protocol: result.HTTP, Plan: plan(nil)}, false, []result.Level{leveled(result.RequestRate, 500)}},
		{"http_sweep_1_4", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: ranged}, false, []result.Level{withGPU(1), withGPU(2), withGPU(3), withGPU(4)}},
		{"grpc_async_c16_dyn", settings{Mode: result.Concurrency, Protocol: result.GRPC, Plan: async}, false, one(16)},
		{"grpc_stream_c4", settings{Mode: result.Concurrency, Protocol: result.GRPC, Plan: async}, false, one(4)},
		{"grpc_verbose_c4", settings{Mode: result.Concurrency, Protocol: result.GRPC, Plan: plan(nil)}, true, one(4)},
		{"latency_threshold", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: limited}, false, append(append(append(one(1), one(2)...), one(3)...), over(4))},
		{"binary_search", settings{Mode: result.Concurrency, Protocol: result.HTTP, Plan: search}, false, append(one(1), over(16), over(8), over(4), over(2))},
	} {
		want, err := os.ReadFile(filepath.Join("testdata", "perf_analyzer", c.file+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := print(c.s, c.verbose, c.levels...)
		if diff := cmp.Diff(layout(string(want)), layout(got)); diff != "" {
			t.Errorf("%s (-perf_analyzer +ours):\n%s", c.file, diff)
		}
	}
}

func TestReportSaysOnStandardErrorWhatPerfAnalyzerSays(t *testing.T) {
	limited := plan(func(p *result.Plan) { p.LatencyLimit = 3 * time.Millisecond })
	_, stderr := print(settings{Plan: limited}, false, over(4))
	if want := "Measured latency went over the set limit of 3 msec. \n"; stderr != want {
		t.Errorf("over the limit: got %q, want %q", stderr, want)
	}
	l := leveled(result.Concurrency, 2)
	l.Stable, l.Reason, l.Windows = false, "throughput spread 14%", l.Windows[:2]
	out, stderr := print(settings{Plan: plan(nil)}, false, l)
	if want := "Failed to obtain stable measurement within 2 measurement windows for concurrency 2. Please try to increase the --measurement-interval.\n"; stderr != want {
		t.Errorf("unstable: got %q, want %q", stderr, want)
	}
	for _, want := range []string{"| unstable: throughput spread 14%", "latency 10500 usec (unstable: throughput spread 14%)\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("unstable: got %s, want %q in it", out, want)
		}
	}
}

func TestReportTellsWhatPerfAnalyzerDoesNot(t *testing.T) {
	l := leveled(result.RequestRate, 500)
	w := l.Merged
	w.Delayed, w.MaxInFlight, w.ClientCPU, w.ServerCPU = 5, 17, 400*time.Millisecond, 200*time.Microsecond
	w.Failed, w.Errors = 2, map[string]int64{"http 503: queue\nis full": 2}
	l.Warnings = []string{"something to know"}
	var o bytes.Buffer
	p := plan(func(p *result.Plan) { p.LatencyClock = result.ScheduleClock })
	r := &Report{Out: &o, Err: &o, Verbose: true, Plan: &p, Target: &result.Target{Protocol: result.HTTP, ServerPID: 7}, Host: result.Host{CPUs: 2}}
	r.End(&l)
	for _, want := range []string{
		"    Avg send request rate: 11.00 infer/sec\n",
		"    [WARNING] Perf Analyzer was not able to keep up with the desired request rate. 25.00% of the requests were delayed. \n",
		"    | latency counts from when a request was due; from when it was sent: p50 10002 usec, p99 20000 usec\n",
		"    | send lag: p50 1 usec, p99 1 usec, max 1 usec; most in flight 17 (limit 512)\n",
		"    | CPU: client 20000.0 usec/request, 10% of 2 cores; server (pid 7) 10.0 usec/request\n",
		"    | errors: 2 of 22 requests (9.09%)\n",
		"    |   2 x http 503: queue is full\n",
		"    | warning: something to know\n",
		"    | mean batch: 1.00 rows\n",
	} {
		if !strings.Contains(o.String(), want) {
			t.Errorf("got %s, want %q in it", o.String(), want)
		}
	}
}

func TestNumbersAreWrittenAsCPlusPlusDoes(t *testing.T) {
	for v, want := range map[float64]string{
		4052.4449: "4052.44", 50004.51: "50004.5", 1047: "1047", 19.98674: "19.9867", 500: "500", 1234567: "1.23457e+06", 0.5: "0.5",
	} {
		if got := result.Number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}

func TestBannerTellsTheLoad(t *testing.T) {
	p := plan(func(p *result.Plan) { p.Ranged, p.Limit, p.Warmup = true, 2500.5, 10 })
	var b bytes.Buffer
	(&Banner{Plan: &p, Mode: result.RequestRate, Distribution: result.Poisson, Decoupled: true}).Write(&b)
	for _, want := range []string{
		"  Sending 10 warmup requests\n", "  Request Rate limit: 2500.5 requests per seconds\n",
		"  Using poisson distribution on request generation\n", "  Detected decoupled model",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got %s, want %q in it", b.String(), want)
		}
	}
}

func TestPercentileIsAddedInItsPlace(t *testing.T) {
	p := plan(func(p *result.Plan) { p.Percentile = 9 })
	out, _ := print(settings{Plan: p, Protocol: result.HTTP}, false, leveled(result.Concurrency, 2))
	if !strings.Contains(out, "infer/sec\n    p9 latency: ") || !strings.Contains(out, "vs. Client p9 Batch Latency") {
		t.Errorf("got %s, want p9 first and in the summary", out)
	}
}

func TestCSVHasPerfAnalyzersColumns(t *testing.T) {
	p95 := plan(func(p *result.Plan) { p.Percentile = 95 })
	gpu := leveled(result.Concurrency, 1)
	gpu.Merged.GPU = &result.GPUMetrics{}
	for _, c := range []struct {
		file    string
		plan    result.Plan
		verbose bool
		level   result.Level
	}{
		{"http_sync_c8", plan(nil), false, leveled(result.Concurrency, 8)},
		{"http_p95", p95, false, leveled(result.Concurrency, 4)},
		{"http_rate_500", plan(nil), false, leveled(result.RequestRate, 500)},
		{"grpc_stream_c4", plan(nil), false, leveled(result.Concurrency, 4)},
		{"grpc_async_c16_dyn", plan(nil), true, leveled(result.Concurrency, 16)},
		{"http_sweep_1_4", plan(nil), true, gpu},
	} {
		want, err := os.ReadFile(filepath.Join("testdata", "perf_analyzer", c.file+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := WriteCSV(&b, &result.Result{Plan: c.plan, Levels: []result.Level{c.level}}, c.verbose); err != nil {
			t.Fatal(err)
		}
		wantHeader, _, _ := strings.Cut(string(want), "\n")
		gotHeader, row, _ := strings.Cut(b.String(), "\n")
		if gotHeader != wantHeader {
			t.Errorf("%s: got columns %s, want %s", c.file, gotHeader, wantHeader)
		}
		if got, want := strings.Count(row, ","), strings.Count(gotHeader, ","); got != want {
			t.Errorf("%s: got a row with %d commas, want %d: %s", c.file, got, want, row)
		}
	}
}

func TestCSVRowsRiseInThroughputAndAddUp(t *testing.T) {
	fast, slow := leveled(result.Concurrency, 2), leveled(result.Concurrency, 4)
	for _, l := range []*result.Level{&fast, &slow} {
		l.Merged.Latency = histogramOf(1_234_567, 1_234_567)
	}
	slow.Merged.Rows = 10
	var b bytes.Buffer
	if err := WriteCSV(&b, &result.Result{Plan: plan(nil), Levels: []result.Level{fast, slow, over(8)}}, true); err != nil {
		t.Fatal(err)
	}
	const want = "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv," +
		"p50 latency,p90 latency,p95 latency,p99 latency,Avg latency,request/response,response wait\n" +
		"4,5,40,552,20,8,596,15,3,1234,1234,1234,1234,1234,43,800\n" +
		"2,10,40,552,20,8,596,15,3,1234,1234,1234,1234,1234,43,800\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
