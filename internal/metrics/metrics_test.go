package metrics

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/engine"
	counted "shoal/internal/histogram"
	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/respcache"
	"shoal/internal/tensor"
)

// fixed is a source with the statistics that a test wrote.
type fixed struct{ list []engine.Statistics }

func (f *fixed) Statistics(string, int64) ([]engine.Statistics, error) { return f.list, nil }

var (
	durations = counted.NewLayout(-24, 12, []float64{0.001, 0.01, 0.1}, 0.0025)
	sizes     = counted.NewLayout(-1, 20, []float64{1, 2, 4, 8})
)

// spread returns a snapshot with the values.
func spread(l *counted.Layout, values ...float64) counted.Snapshot {
	h, sum := counted.New(l), 0.0
	for _, v := range values {
		h.Add(v, 1)
		sum += v
	}
	return h.Snapshot(sum)
}

// idle is the state of a version that nobody has asked yet.
func idle(name string, version int64) engine.Statistics {
	return engine.Statistics{
		Name: name, Version: version, Config: &modelpb.ModelConfig{}, Instances: 1,
		Failures: map[string]uint64{"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 0},
		Distributions: engine.Distributions{
			RequestTime: spread(durations), FirstResponseTime: spread(durations), QueueTime: spread(durations), BatchRows: spread(sizes),
			InputTime: spread(durations), InferTime: spread(durations), OutputTime: spread(durations),
			FirstResponse: []float64{1, 2.5},
		},
	}
}

func serve(t *testing.T, src Source, settings ...string) *Metrics {
	t.Helper()
	s, err := ParseSettings(settings)
	if err != nil {
		t.Fatal(err)
	}
	m := Start(Options{Settings: s, Interval: time.Second, Log: slog.New(slog.DiscardHandler)}, src)
	t.Cleanup(m.Close)
	return m
}

func get(t *testing.T, h http.Handler, accept string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("got %d, want 200:\n%s", w.Code, w.Body)
	}
	return w.Result()
}

// scrape returns the lines of the text that begin with prefix.
func scrape(t *testing.T, h http.Handler, prefix string) []string {
	t.Helper()
	body, err := io.ReadAll(get(t, h, "").Body)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, line := range strings.Split(string(body), "\n") {
		if strings.HasPrefix(line, prefix) {
			found = append(found, line)
		}
	}
	return found
}

func want(t *testing.T, got []string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !slices.Contains(got, line) {
			t.Errorf("got no line %s in\n%s", line, strings.Join(got, "\n"))
		}
	}
}

func TestFamiliesAreDescribedAsTritonsAre(t *testing.T) {
	recorded, err := os.ReadFile("testdata/triton_families.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := Start(Options{
		Settings: Settings{Summaries: true, FirstResponse: true}, CPU: true, Interval: time.Hour, Log: slog.New(slog.DiscardHandler),
	}, &fixed{[]engine.Statistics{idle("m", 1)}})
	defer m.Close()
	got := scrape(t, m, "# ")
	for _, line := range strings.Split(strings.TrimSpace(string(recorded)), "\n") {
		want(t, got, line)
	}
}

func TestSeriesAreThereFromTheLoadToTheUnload(t *testing.T) {
	src := &fixed{[]engine.Statistics{idle("m", 1)}}
	m := serve(t, src)
	lines := append(scrape(t, m, "nv_inference"), scrape(t, m, "shoal_")...)
	want(t, lines,
		`nv_inference_request_success{model="m",version="1"} 0`,
		`nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 0`,
		`nv_inference_request_failure{model="m",reason="OTHER",version="1"} 0`,
		`shoal_batches_total{model="m",reason="idle",version="1"} 0`,
		`shoal_batches_total{model="m",reason="preferred",version="1"} 0`,
		`shoal_batches_total{model="m",reason="full",version="1"} 0`,
		`shoal_batches_total{model="m",reason="delay",version="1"} 0`,
		`shoal_requests_refused_total{model="m",version="1"} 0`,
		`shoal_instances{model="m",version="1"} 1`,
		`shoal_instances_busy{model="m",version="1"} 0`,
		`shoal_instance_busy_seconds_total{model="m",version="1"} 0`,
		`shoal_request_duration_seconds_bucket{model="m",version="1",le="+Inf"} 0`,
		`shoal_queue_duration_seconds_count{model="m",version="1"} 0`,
		`shoal_batch_rows_bucket{model="m",version="1",le="8"} 0`,
	)
	src.list = nil
	if got := slices.Concat(scrape(t, m, "nv_inference"), scrape(t, m, "nv_model"), scrape(t, m, "shoal_")); len(got) > 0 {
		t.Errorf("after the unload: got\n%s\nwant nothing", strings.Join(got, "\n"))
	}
}

func TestValuesAreThoseOfTheEngine(t *testing.T) {
	s := idle("m", 3)
	s.Success, s.Queue = engine.Duration{Count: 5_000_000, Ns: 7_000_999}, engine.Duration{Count: 5, Ns: 2_000_000}
	s.InferenceCount, s.ExecutionCount, s.Pending, s.Refused = 9, 4, 6, 2
	s.ComputeInput, s.ComputeInfer, s.ComputeOutput = engine.Duration{Ns: 1_000}, engine.Duration{Ns: 2_000}, engine.Duration{Ns: 3_000}
	s.Failures["CANCELED"] = 8
	s.Formed[infer.ReasonFull] = 11
	s.Instances, s.Busy, s.LoadDuration = 2, 1, 1500*time.Millisecond
	s.RequestTime = spread(durations, 0.001, 0.002, 0.05, 7)
	s.BatchRows = spread(sizes, 1, 3, 8, 8)
	s.Config = &modelpb.ModelConfig{MetricTags: map[string]string{"zone": "a\"b\\c\nd\xff", "Team": "x"}}
	const labels = `{_Team="x",_zone="a\"b\\c\nd` + "\uFFFD" + `",model="m",version="3"`
	m := serve(t, &fixed{[]engine.Statistics{s}})
	want(t, append(scrape(t, m, "nv_"), scrape(t, m, "shoal_")...),
		`nv_inference_request_success`+labels+`} 5000000`,
		`nv_inference_count`+labels+`} 9`,
		`nv_inference_exec_count`+labels+`} 4`,
		`nv_inference_request_duration_us`+labels+`} 7000`,
		`nv_inference_queue_duration_us`+labels+`} 2000`,
		`nv_inference_compute_input_duration_us`+labels+`} 1`,
		`nv_inference_compute_infer_duration_us`+labels+`} 2`,
		`nv_inference_compute_output_duration_us`+labels+`} 3`,
		`nv_inference_pending_request_count`+labels+`} 6`,
		`nv_model_load_duration_secs`+labels+`} 1.5`,
		strings.Replace(`nv_inference_request_failure`+labels+`} 8`, `model="m",`, `model="m",reason="CANCELED",`, 1),
		strings.Replace(`shoal_batches_total`+labels+`} 11`, `model="m",`, `model="m",reason="full",`, 1),
		`shoal_requests_refused_total`+labels+`} 2`,
		`shoal_instances`+labels+`} 2`,
		`shoal_instances_busy`+labels+`} 1`,
		`shoal_request_duration_seconds_bucket`+labels+`,le="0.001"} 1`,
		`shoal_request_duration_seconds_bucket`+labels+`,le="0.01"} 2`,
		`shoal_request_duration_seconds_bucket`+labels+`,le="0.1"} 3`,
		`shoal_request_duration_seconds_bucket`+labels+`,le="+Inf"} 4`,
		`shoal_request_duration_seconds_sum`+labels+`} 7.053`,
		`shoal_request_duration_seconds_count`+labels+`} 4`,
		`shoal_batch_rows_bucket`+labels+`,le="2"} 1`,
		`shoal_batch_rows_bucket`+labels+`,le="4"} 2`,
		`shoal_batch_rows_sum`+labels+`} 20`,
	)
}

func TestLatencyCountersCanBeTurnedOff(t *testing.T) {
	s := idle("m", 1)
	s.Success, s.Failures["BACKEND"], s.Pending = engine.Duration{Count: 5, Ns: 5000}, 3, 2
	got := scrape(t, serve(t, &fixed{[]engine.Statistics{s}}, "counter_latencies=false"), "nv_")
	want(t, got,
		`nv_inference_request_success{model="m",version="1"} 0`,
		`nv_inference_request_failure{model="m",reason="BACKEND",version="1"} 0`,
		`nv_inference_pending_request_count{model="m",version="1"} 2`)
	if i := slices.IndexFunc(got, func(l string) bool { return strings.Contains(l, "duration_us") }); i >= 0 {
		t.Errorf("got %s, want no latency counters", got[i])
	}
}

func TestFirstResponsesHaveTheModelsBuckets(t *testing.T) {
	s := idle("m", 1)
	s.FirstResponseTime = spread(durations, 0.001, 0.0024, 0.0026)
	got := scrape(t, serve(t, &fixed{[]engine.Statistics{s}}, "histogram_latencies=true"), engine.FamilyFirstResponse)
	if diff := cmp.Diff([]string{
		engine.FamilyFirstResponse + `_bucket{model="m",version="1",le="1"} 1`,
		engine.FamilyFirstResponse + `_bucket{model="m",version="1",le="2.5"} 2`,
		engine.FamilyFirstResponse + `_bucket{model="m",version="1",le="+Inf"} 3`,
		engine.FamilyFirstResponse + `_sum{model="m",version="1"} 6`,
		engine.FamilyFirstResponse + `_count{model="m",version="1"} 3`,
	}, got); diff != "" {
		t.Errorf("first responses (-want +got):\n%s", diff)
	}
	if got := scrape(t, serve(t, &fixed{[]engine.Statistics{s}}), engine.FamilyFirstResponse); len(got) > 0 {
		t.Errorf("without the setting: got %v, want none", got)
	}
}

// acceptNative is what a Prometheus sends that wants native histograms.
const acceptNative = `application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1`

// acceptPlain is what it sends otherwise.
const acceptPlain = `application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2`

func TestAScraperThatAsksForProtobufGetsNativeBucketsToo(t *testing.T) {
	s := idle("m", 1)
	values := []float64{1e-9, 0.0004, 0.0004, 0.00041, 0.02, 0.02, 3}
	s.RequestTime = spread(durations, values...)
	m := serve(t, &fixed{[]engine.Statistics{s, idle("n", 1)}})
	resp := get(t, m, acceptNative)
	families := map[string]*dto.MetricFamily{}
	dec := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	for {
		f := &dto.MetricFamily{}
		if err := dec.Decode(f); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		families[f.GetName()] = f
	}
	h := families[engine.FamilyRequestDuration].GetMetric()[0].GetHistogram()
	if h.GetSchema() != 4 || h.GetZeroCount() != 1 || h.GetSampleCount() != 7 || len(h.GetBucket()) != 3 {
		t.Errorf("got schema %d, %d near zero of %d values and %d classic buckets, want 4, 1, 7 and 3",
			h.GetSchema(), h.GetZeroCount(), h.GetSampleCount(), len(h.GetBucket()))
	}
	wantBuckets := map[int]int64{}
	for _, v := range values[1:] {
		wantBuckets[int(math.Ceil(math.Log2(v)*16))]++
	}
	if diff := cmp.Diff(wantBuckets, unspan(h)); diff != "" {
		t.Errorf("native buckets (-want +got):\n%s", diff)
	}
	empty := families[engine.FamilyRequestDuration].GetMetric()[1].GetHistogram()
	if len(empty.GetPositiveSpan()) != 1 || len(unspan(empty)) != 0 {
		t.Errorf("of an idle model: got %v, want one empty span, which marks a native histogram", empty)
	}
	if got := families["nv_inference_request_success"].GetType(); got != dto.MetricType_COUNTER {
		t.Errorf("got %v, want a counter", got)
	}
}

// unspan reads native buckets as the format's description says to.
func unspan(h *dto.Histogram) map[int]int64 {
	buckets := map[int]int64{}
	index, n, i := 0, int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			n += h.GetPositiveDelta()[i]
			buckets[index] = n
			index++
			i++
		}
	}
	return buckets
}

func TestOtherScrapersGetTritonsTextAndNames(t *testing.T) {
	m := serve(t, &fixed{[]engine.Statistics{idle("m", 1)}})
	for _, accept := range []string{"", "*/*", acceptPlain} {
		resp := get(t, m, accept)
		if got := resp.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("Accept %q: got %q, want text", accept, got)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(body), "\nnv_inference_request_success{") {
			t.Errorf("Accept %q: got no counter under Triton's name", accept)
		}
		if line := regexp.MustCompile(`(?m)^[^#].* [-+.0-9]+e.*$`).FindString(string(body)); line != "" {
			t.Errorf("Accept %q: got %s, want plain decimals", accept, line)
		}
		dec := expfmt.NewDecoder(strings.NewReader(string(body)), expfmt.NewFormat(expfmt.TypeTextPlain))
		for {
			if err := dec.Decode(&dto.MetricFamily{}); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("Accept %q: the library cannot read it: %v", accept, err)
			}
		}
	}
}

func TestOtherMethodsAndPathsHaveNoMetrics(t *testing.T) {
	m := serve(t, &fixed{})
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/metrics", http.StatusMethodNotAllowed},
		{http.MethodHead, "/metrics", http.StatusMethodNotAllowed},
		{http.MethodGet, "/foo", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.want {
			t.Errorf("%s %s: got %d, want %d", c.method, c.path, w.Code, c.want)
		}
	}
}

// TestARealEnginesRequestsAreSeen goes the whole way, with summaries.
func TestARealEnginesRequestsAreSeen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m", "1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := `backend: "identity" max_batch_size: 4
		input { name: "INPUT0" data_type: TYPE_INT8 dims: [ 1 ] }
		output { name: "OUTPUT0" data_type: TYPE_INT8 dims: [ 1 ] }
		response_cache { enable: true }
		dynamic_batching { }`
	root := filepath.Dir(filepath.Dir(dir))
	if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Start(t.Context(), engine.Options{
		Repositories: []string{root}, LoadThreads: 1, ComputeTimes: true, Cache: respcache.New(1 << 20),
		Backends: []backend.Backend{identity.Backend{}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close(context.Background()) }()
	v, err := e.Acquire("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	for _, rows := range []int{1, 2, 3, 3} {
		r := infer.NewRequest()
		r.Inputs = append(r.Inputs, infer.Input{
			Name: "INPUT0", Type: tensor.Int8, Shape: tensor.Shape{int64(rows), 1}, Data: infer.Data{First: make([]byte, rows)},
		})
		if err := v.Infer(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	m := serve(t, e, "summary_latencies=true")
	want(t, append(scrape(t, m, "nv_"), scrape(t, m, "shoal_")...),
		`nv_inference_count{model="m",version="1"} 6`,
		`nv_inference_exec_count{model="m",version="1"} 3`,
		`nv_inference_request_summary_us_count{model="m",version="1"} 4`,
		`nv_cache_hit_summary_per_model_count{model="m",version="1"} 1`,
		`nv_cache_miss_summary_per_model_count{model="m",version="1"} 3`,
		`nv_inference_compute_infer_summary_us_count{model="m",version="1"} 3`,
		`shoal_batch_rows_bucket{model="m",version="1",le="2"} 2`,
		`shoal_request_duration_seconds_count{model="m",version="1"} 4`)
	batches := 0 // for any reason: the policy learns from what the batches took
	for _, line := range scrape(t, m, "shoal_batches_total{") {
		n, err := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
		if err != nil {
			t.Fatal(err)
		}
		batches += n
	}
	if batches != 3 {
		t.Errorf("got %d batches, want 3", batches)
	}
}

func TestUnusedVersionsOfAServerWithManyHaveFewerSeries(t *testing.T) {
	src := &fixed{}
	for i := range manyVersions {
		src.list = append(src.list, idle(fmt.Sprint("m", i), 1))
	}
	m := serve(t, src)
	buckets := func() int { return len(scrape(t, m, "shoal_queue_duration_seconds_count")) }
	if got := buckets(); got != manyVersions {
		t.Errorf("%d versions: got %d histograms, want one each", manyVersions, got)
	}
	used := idle("used", 1)
	used.Success.Count = 1
	src.list = append(src.list, used)
	if got := buckets(); got != 1 {
		t.Errorf("%d versions: got %d histograms, want that of the used one", manyVersions+1, got)
	}
	if got := len(scrape(t, m, "nv_inference_request_success")); got != manyVersions+1 {
		t.Errorf("got %d of Triton's counters, want one for each version", got)
	}
}
