package otlp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"shoal/internal/status"
	"shoal/internal/trace"
)

// A receiver keeps the spans that it is sent.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*pb.Span
	resource map[string]string
	paths    []string
}

func startReceiver(t *testing.T) *receiver {
	r := &receiver{resource: make(map[string]string)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var in collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &in)
		}
		if err != nil || req.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("got %v, %v", err, req.Header)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paths = append(r.paths, req.URL.Path)
		for _, rs := range in.GetResourceSpans() {
			for name, value := range attributes(rs.GetResource().GetAttributes()) {
				r.resource[name] = value
			}
			for _, ss := range rs.GetScopeSpans() {
				r.spans = append(r.spans, ss.GetSpans()...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func attributes(list []*common.KeyValue) map[string]string {
	all := make(map[string]string)
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_IntValue:
			all[kv.GetKey()] = fmt.Sprint(v.IntValue)
		default:
			all[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
	}
	return all
}

func events(s *pb.Span) (names []string) {
	for _, e := range s.GetEvents() {
		names = append(names, e.GetName())
	}
	return names
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// settings are settings with which every request is traced, to a receiver at url.
func settings(url string) trace.Config {
	c := trace.DefaultConfig()
	c.Mode, c.Level, c.Rate = trace.ModeOpenTelemetry, trace.Timestamps, 1
	c.OpenTelemetry.URL = url
	return c
}

func start(t *testing.T, c trace.Config, opt Options) (*trace.Tracer, *Exporter) {
	t.Helper()
	opt.OpenTelemetry, opt.Service, opt.Version = c.OpenTelemetry, "shoal", "1"
	if opt.Log == nil {
		opt.Log = quiet()
	}
	x, err := Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := trace.Start(c, x, opt.Log)
	if err != nil {
		t.Fatal(err)
	}
	return tracer, x
}

// request plays a request that is refused at once.
func request(t *trace.Tracer, caller trace.Parent) bool {
	tr := t.Sample("m", trace.HTTP, caller, time.Now())
	tr.End()
	return tr != nil
}

var caller = trace.ParseParent("00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01", "a=b")

func TestSpansOfTwoRequestsInABatch(t *testing.T) {
	r := startReceiver(t)
	c := settings(r.URL)
	c.OpenTelemetry.Resource = []string{"service.name=mine", "zone=a"}
	tracer, _ := start(t, c, Options{})
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	first, second := tracer.Sample("m", trace.HTTP, caller, at(0)), tracer.Sample("m", trace.GRPC, trace.Parent{}, at(1))
	b := &trace.Batch{Model: "m", Version: 3, Start: at(5), InputsReady: at(6), OutputsOut: at(7), End: at(8), Requests: 3, Rows: 5, Reason: "full"}
	for i, tr := range []*trace.Trace{first, second} {
		tr.ReadDone()
		tr.First().Begin("m", 3, "id"[:2*(1-i)], at(2))
		b.Add(tr.First())
	}
	b.Done()
	call := first.First().Call()
	call.Begin("n", 1, "", at(7))
	call.Done(time.Time{}, status.Errorf(status.Internal, "broken"))
	for _, tr := range []*trace.Trace{first, second} {
		tr.First().Done(at(3), nil)
		tr.Sending()
		tr.End()
	}
	tracer.Close()

	spans := make(map[string]*pb.Span) // the trace of the caller, the batch, and the rest
	for _, s := range r.spans {
		name := s.GetName()
		if s.GetName() != "batch" && hex.EncodeToString(s.GetTraceId()) != "0af7651916cd43dd8448eb211c12666c" {
			name = "second " + name
		}
		spans[name] = s
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range spans {
			if !yield(name) {
				return
			}
		}
	})
	if want := []string{"InferRequest", "batch", "compute", "m", "n", "queue", "second InferRequest", "second compute", "second m", "second queue"}; !slices.Equal(names, want) {
		t.Fatalf("got spans %q, want %q", names, want)
	}
	for child, parent := range map[string]string{
		"m": "InferRequest", "queue": "m", "compute": "m", "n": "m",
		"second m": "second InferRequest", "second queue": "second m", "second compute": "second m",
	} {
		if !bytes.Equal(spans[child].GetParentSpanId(), spans[parent].GetSpanId()) || !bytes.Equal(spans[child].GetTraceId(), spans[parent].GetTraceId()) {
			t.Errorf("the span %s is not within %s", child, parent)
		}
	}
	root := spans["InferRequest"]
	if hex.EncodeToString(root.GetParentSpanId()) != "b7ad6b7169242424" || root.GetTraceState() != "a=b" || root.GetKind() != pb.Span_SPAN_KIND_SERVER {
		t.Errorf("got the root %v, want it within the caller's span", root)
	}
	if len(spans["second InferRequest"].GetParentSpanId()) != 0 {
		t.Error("a request without a caller's span has a parent")
	}
	if got, want := events(root), []string{"HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END"}; !slices.Equal(got, want) {
		t.Errorf("events of the root: got %q, want %q", got, want)
	}
	if got, want := events(spans["m"]), []string{"REQUEST_START", "QUEUE_START", "REQUEST_END"}; !slices.Equal(got, want) {
		t.Errorf("events of the model: got %q, want %q", got, want)
	}
	if got, want := events(spans["compute"]), []string{"COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"}; !slices.Equal(got, want) {
		t.Errorf("events of the execution: got %q, want %q", got, want)
	}
	want := map[string]string{"triton.model_name": "m", "triton.model_version": "3", "triton.trace_id": "1", "triton.trace_parent_id": "0", "triton.request_id": "id"}
	if diff := cmp.Diff(want, attributes(spans["m"].GetAttributes())); diff != "" {
		t.Errorf("attributes of the model (-want +got):\n%s", diff)
	}
	if q := spans["queue"]; q.GetStartTimeUnixNano() != uint64(at(3).UnixNano()) || q.GetEndTimeUnixNano() != uint64(at(5).UnixNano()) {
		t.Errorf("got %v, want the time from the queue's start to the execution's", q)
	}
	if s := spans["n"].GetStatus(); s.GetCode() != pb.Status_STATUS_CODE_ERROR || s.GetMessage() != "broken" {
		t.Errorf("got %v, want the error of the model that was called", s)
	}
	batch := spans["batch"]
	want = map[string]string{"triton.model_name": "m", "triton.model_version": "3", "shoal.batch.requests": "3", "shoal.batch.rows": "5", "shoal.batch.reason": "full"}
	if diff := cmp.Diff(want, attributes(batch.GetAttributes())); diff != "" {
		t.Errorf("attributes of the batch (-want +got):\n%s", diff)
	}
	links := batch.GetLinks()
	if len(links) != 2 || !bytes.Equal(links[0].GetSpanId(), spans["m"].GetSpanId()) || !bytes.Equal(links[0].GetTraceId(), spans["m"].GetTraceId()) || !bytes.Equal(links[1].GetSpanId(), spans["second m"].GetSpanId()) {
		t.Errorf("got links %v, want one to each request", links)
	}
	if back := spans["second compute"].GetLinks(); len(back) != 1 || !bytes.Equal(back[0].GetSpanId(), batch.GetSpanId()) || !bytes.Equal(back[0].GetTraceId(), batch.GetTraceId()) {
		t.Errorf("got links %v, want one to the batch", back)
	}
	if len(batch.GetParentSpanId()) != 0 {
		t.Error("the batch has a parent")
	}
	if r.resource["service.name"] != "mine" || r.resource["zone"] != "a" || r.resource["service.version"] != "1" || r.paths[0] != "/v1/traces" {
		t.Errorf("got the resource %v at %v", r.resource, r.paths)
	}
}

func TestACallersTraceIsTakenWhateverTheRate(t *testing.T) {
	c := settings("localhost:1")
	c.Rate, c.Count = 0, 0
	tracer, _ := start(t, c, Options{Grace: time.Nanosecond})
	defer tracer.Close()
	unsampled := caller
	unsampled.Flags = 0
	if !request(tracer, caller) || request(tracer, unsampled) || request(tracer, trace.Parent{}) {
		t.Error("want a trace for a caller that records its own, and for no other")
	}
	if _, err := tracer.Update("", map[string][]string{"trace_level": {"TENSORS"}}); err == nil {
		t.Error("got a level with a rate of zero, want it refused as Triton does")
	}
}

// log is a log in memory.
type log struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.String(), text)
}

func TestWithoutAReceiverSpansAreDroppedAndCounted(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	var said log
	c := settings(gone.URL)
	c.OpenTelemetry.QueueSize, c.OpenTelemetry.BatchSize, c.OpenTelemetry.Delay = 8, 4, time.Millisecond
	tracer, x := start(t, c, Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	for i := 0; x.Dropped() < 20; i++ {
		if !request(tracer, trace.Parent{}) {
			t.Fatal("the request was not traced")
		}
	}
	tracer.Close()
	if got := said.count("the receiver of traces does not take them"); got != 1 {
		t.Errorf("got %d lines in the log, want 1:\n%s", got, &said.Buffer)
	}
	if got := x.queued.Load(); got != 0 {
		t.Errorf("got %d spans in the queue, want none", got)
	}
}

func TestAReceiverThatHangsFillsTheQueueAndDoesNotHoldUpTheEnd(t *testing.T) {
	asked, release := make(chan struct{}, 1), make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
	}))
	defer hangs.Close()
	defer close(release)
	var said log
	c := settings(hangs.URL)
	c.OpenTelemetry.QueueSize, c.OpenTelemetry.BatchSize = 8, 4
	tracer, x := start(t, c, Options{Grace: time.Millisecond, Log: slog.New(slog.NewTextHandler(&said, nil))})
	for range 4 {
		request(tracer, trace.Parent{})
	}
	<-asked
	for range 10 {
		request(tracer, trace.Parent{})
	}
	if got := x.Dropped(); got != 6 {
		t.Errorf("got %d spans dropped, want the 6 for which there was no room", got)
	}
	tracer.Close() // would wait for ever
	if got := x.Dropped(); got != 14 {
		t.Errorf("got %d spans dropped in the end, want all 14", got)
	}
	if got := said.count("the queue for the receiver of traces is full"); got != 1 {
		t.Errorf("got %d lines in the log, want 1:\n%s", got, &said.Buffer)
	}
}

func TestAddressesOfReceivers(t *testing.T) {
	for text, want := range map[string]string{
		"":                         DefaultURL,
		"collector:4318":           "http://collector:4318/v1/traces",
		"localhost:4318/v1/traces": "http://localhost:4318/v1/traces",
		"https://x/otlp/v1/traces": "https://x/otlp/v1/traces",
		"http://x/":                "http://x/v1/traces",
		"ftp://x":                  "",
		"http://":                  "",
	} {
		if got, err := endpoint(text); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

// BenchmarkRequest is what a traced request costs besides its record: the making of its
// spans, and its share of sending them.
func BenchmarkRequest(b *testing.B) {
	r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) }))
	defer r.Close()
	c := settings(r.URL)
	c.OpenTelemetry.QueueSize = 1 << 20
	x, err := Start(Options{OpenTelemetry: c.OpenTelemetry, Service: "shoal", Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	tracer, err := trace.Start(c, x, quiet())
	if err != nil {
		b.Fatal(err)
	}
	defer tracer.Close()
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		tr := tracer.Sample("m", trace.HTTP, trace.Parent{}, now)
		tr.First().Begin("m", 1, "", now)
		batch := &trace.Batch{Model: "m", Start: now, InputsReady: now, OutputsOut: now, End: now, Requests: 1, Rows: 1}
		batch.Add(tr.First())
		batch.Done()
		tr.First().Done(now, nil)
		tr.Sending()
		tr.End()
	}
}
