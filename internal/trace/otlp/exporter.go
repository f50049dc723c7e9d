// Package otlp sends traces as spans to a receiver that speaks OpenTelemetry's protocol
// over HTTP. A request never waits for the receiver: spans wait in a bounded queue, and
// are dropped and counted when it is full. An Exporter is safe for concurrent use.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"shoal/internal/trace"
)

// Options say where spans go.
type Options struct {
	trace.OpenTelemetry
	// Service and Version describe this server, unless the resource or the
	// environment does.
	Service, Version string
	// Grace is how long Close may take to send what is left; 5 seconds when it is zero.
	Grace time.Duration
	// Environment says whether the environment names the receiver.
	Environment bool
	Log         *slog.Logger
}

// DefaultURL is where spans go unless something else is said.
const DefaultURL = "http://localhost:4318/v1/traces"

// scope names what makes the spans, as Triton does.
const scope = "triton-server"

// maxLinks is the most links of a span: a batch has one for each traced request.
const maxLinks = 4096

// An Exporter makes spans of traces and sends them. It implements trace.Exporter.
type Exporter struct {
	provider *sdk.TracerProvider
	tracer   otel.Tracer
	limit    int64
	grace    time.Duration
	log      *slog.Logger
	quit     context.Context // ends when nothing is sent any more
	giveUp   context.CancelFunc

	queued  atomic.Int64 // spans that are not sent yet
	dropped atomic.Uint64
	down    atomic.Bool // the last attempt failed
	full    atomic.Bool // spans were dropped since the last success
}

// Start returns an exporter, which does not connect before it has spans to send. The
// caller must close it.
func Start(opt Options) (*Exporter, error) {
	var to []otlptracehttp.Option
	if opt.URL != "" || !opt.Environment {
		target, err := endpoint(opt.URL)
		if err != nil {
			return nil, err
		}
		to = append(to, otlptracehttp.WithEndpointURL(target))
	}
	sender, err := otlptracehttp.New(context.Background(), to...)
	if err != nil {
		return nil, fmt.Errorf("sending spans: %w", err)
	}
	described, err := describe(opt)
	if err != nil {
		return nil, err
	}
	x := &Exporter{limit: int64(opt.QueueSize), grace: opt.Grace, log: opt.Log}
	if x.grace == 0 {
		x.grace = 5 * time.Second
	}
	x.quit, x.giveUp = context.WithCancel(context.Background())
	limits := sdk.NewSpanLimits()
	limits.LinkCountLimit = maxLinks
	x.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(counted{sender, x}, sdk.WithMaxQueueSize(int(opt.QueueSize)), sdk.WithMaxExportBatchSize(int(opt.BatchSize)), sdk.WithBatchTimeout(opt.Delay)),
		sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(generator{}), sdk.WithResource(described), sdk.WithRawSpanLimits(limits),
	)
	x.tracer = x.provider.Tracer(scope)
	return x, nil
}

// endpoint completes the address of a receiver: the scheme and the path may be left out.
func endpoint(text string) (string, error) {
	if text == "" {
		return DefaultURL, nil
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("opentelemetry,url is %q, want such as %s", text, DefaultURL)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// describe returns what describes this server: its name, then the environment, then the
// settings, of which the later ones win.
func describe(opt Options) (*resource.Resource, error) {
	var own []attribute.KeyValue
	for _, text := range opt.Resource {
		name, value, _ := strings.Cut(text, "=")
		own = append(own, attribute.String(name, value))
	}
	from, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	all := resource.NewSchemaless(attribute.String("service.name", opt.Service), attribute.String("service.version", opt.Version))
	for _, more := range []*resource.Resource{from, resource.NewSchemaless(own...)} {
		if all, err = resource.Merge(all, more); err != nil {
			return nil, fmt.Errorf("describe this server: %w", err)
		}
	}
	return all, nil
}

// Dropped implements trace.Exporter.
func (x *Exporter) Dropped() uint64 { return x.dropped.Load() }

// Close implements trace.Exporter.
func (x *Exporter) Close() {
	timer := time.AfterFunc(x.grace, x.giveUp)
	defer timer.Stop()
	if err := x.provider.Shutdown(context.Background()); err != nil {
		x.log.Warn("spans are lost at the end", "err", err)
	}
	x.giveUp()
}

// reserve makes room for spans in the queue, or drops them.
func (x *Exporter) reserve(n int) bool {
	if x.queued.Add(int64(n)) <= x.limit {
		return true
	}
	x.queued.Add(-int64(n))
	x.dropped.Add(uint64(n))
	if !x.full.Swap(true) {
		x.log.Warn("spans are dropped: the queue for the receiver of traces is full; trace fewer requests or raise opentelemetry,bsp_max_queue_size", "spans", x.limit)
	}
	return false
}

// counted is the sender, which counts what it could not send.
type counted struct {
	sdk.SpanExporter
	x *Exporter
}

// ExportSpans implements sdk.SpanExporter. It does not fail: it says itself what is lost,
// once for as long as the receiver is away.
func (c counted) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	x := c.x
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.quit, cancel)()
	err := c.SpanExporter.ExportSpans(ctx, spans)
	x.queued.Add(-int64(len(spans)))
	if err != nil {
		x.dropped.Add(uint64(len(spans)))
		if !x.down.Swap(true) {
			x.log.Warn("spans are dropped: the receiver of traces does not take them", "err", err)
		}
		return nil
	}
	if x.down.Swap(false) {
		x.log.Info("the receiver of traces takes spans again", "dropped", x.dropped.Load())
	}
	x.full.Store(false)
	return nil
}
