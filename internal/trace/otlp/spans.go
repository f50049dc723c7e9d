package otlp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"

	"shoal/internal/trace"
)

// ids are the identities that a trace has chosen for a span, so that a batch can name
// the spans of its requests before they are made.
type ids struct {
	trace [16]byte
	span  [8]byte
}

type idsKey struct{}

// withIDs returns a context in which the next span gets these identities.
func withIDs(ctx context.Context, t [16]byte, s [8]byte) context.Context {
	return context.WithValue(ctx, idsKey{}, ids{t, s})
}

// A generator gives spans the identities that were chosen for them, and others random
// ones. It implements sdk.IDGenerator.
type generator struct{}

func (generator) NewIDs(ctx context.Context) (otel.TraceID, otel.SpanID) {
	chosen := ctx.Value(idsKey{}).(ids) // every span without a parent has them
	return chosen.trace, chosen.span
}

func (generator) NewSpanID(ctx context.Context, _ otel.TraceID) (id otel.SpanID) {
	if chosen, ok := ctx.Value(idsKey{}).(ids); ok && chosen.span != [8]byte{} {
		return chosen.span
	}
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// Trace implements trace.Exporter.
func (x *Exporter) Trace(t *trace.Trace) {
	runs := t.Runs()
	n := 1
	for _, r := range runs {
		n += spansOf(r)
	}
	if !x.reserve(n) {
		return
	}
	end := t.Sent
	if end.IsZero() {
		end = time.Now()
	}
	ctx := otel.ContextWithRemoteSpanContext(context.Background(), callerOf(t.Caller))
	ctx, root := x.start(withIDs(ctx, t.TraceID, t.SpanID), "InferRequest", t.Received, otel.WithSpanKind(otel.SpanKindServer))
	addEvents(root, t.Events())
	within := map[uint64]context.Context{0: ctx}
	for _, r := range runs { // whoever calls another comes first
		if spansOf(r) > 0 {
			within[r.ID] = x.run(within[r.Parent], r)
		} else {
			within[r.ID] = within[r.Parent]
		}
	}
	finish(root, end, t.Err)
}

// callerOf returns the caller's span.
func callerOf(p trace.Parent) otel.SpanContext {
	state, err := otel.ParseTraceState(p.State)
	if err != nil {
		state = otel.TraceState{} // it is the caller's matter
	}
	return otel.NewSpanContext(otel.SpanContextConfig{
		TraceID: p.TraceID, SpanID: p.SpanID, TraceFlags: otel.TraceFlags(p.Flags), TraceState: state, Remote: true,
	})
}

// spansOf returns how many spans run makes.
func spansOf(r *trace.Run) int {
	switch {
	case r.Start.IsZero():
		return 0
	case r.Batch != nil:
		return 3
	case !r.Queued.IsZero():
		return 2
	}
	return 1
}

// run makes the spans of one model's work: its own, the queue's and the execution's. It
// returns the context for spans within.
func (x *Exporter) run(ctx context.Context, r *trace.Run) context.Context {
	attributes := []attribute.KeyValue{
		attribute.String("triton.model_name", r.Model), attribute.Int64("triton.model_version", r.Version),
		attribute.Int64("triton.trace_id", int64(r.ID)), attribute.Int64("triton.trace_parent_id", int64(r.Parent)),
	}
	if r.RequestID != "" {
		attributes = append(attributes, attribute.String("triton.request_id", r.RequestID))
	}
	ctx, model := x.start(withIDs(ctx, [16]byte{}, r.SpanID), r.Model, r.Start, otel.WithAttributes(attributes...))
	addEvents(model, r.Events())
	inner := withIDs(ctx, [16]byte{}, [8]byte{})
	b := r.Batch
	if !r.Queued.IsZero() || b != nil {
		until := r.End
		if b != nil {
			until = b.Start
		}
		_, queue := x.start(inner, "queue", r.Queued)
		finish(queue, until, "")
	}
	if b != nil {
		options := []otel.SpanStartOption{otel.WithAttributes(batchAttributes(b)...)}
		if b.Reason != "" {
			options = append(options, otel.WithLinks(otel.Link{SpanContext: local(b.TraceID, b.SpanID)}))
		}
		_, compute := x.start(inner, "compute", b.Start, options...)
		addEvents(compute, b.Events())
		finish(compute, b.End, b.Err)
	}
	finish(model, r.End, r.Err)
	return inner
}

// Batch implements trace.Exporter. The span of a batch has a trace of its own, since it
// belongs to several requests, and links to theirs.
func (x *Exporter) Batch(b *trace.Batch) {
	if !x.reserve(1) {
		return
	}
	links := make([]otel.Link, len(b.Runs))
	for i, r := range b.Runs {
		links[i].SpanContext = local(r.TraceID(), r.SpanID)
	}
	attributes := append(batchAttributes(b), attribute.String("triton.model_name", b.Model), attribute.Int64("triton.model_version", b.Version))
	_, span := x.start(withIDs(context.Background(), b.TraceID, b.SpanID), "batch", b.Start, otel.WithLinks(links...), otel.WithAttributes(attributes...))
	addEvents(span, b.Events())
	finish(span, b.End, b.Err)
}

func batchAttributes(b *trace.Batch) []attribute.KeyValue {
	list := []attribute.KeyValue{attribute.Int("shoal.batch.requests", b.Requests), attribute.Int("shoal.batch.rows", b.Rows)}
	if b.Reason != "" {
		list = append(list, attribute.String("shoal.batch.reason", b.Reason))
	}
	return list
}

// local returns the identity of a span of this server.
func local(t [16]byte, s [8]byte) otel.SpanContext {
	return otel.NewSpanContext(otel.SpanContextConfig{TraceID: t, SpanID: s, TraceFlags: otel.FlagsSampled})
}

func (x *Exporter) start(ctx context.Context, name string, at time.Time, options ...otel.SpanStartOption) (context.Context, otel.Span) {
	return x.tracer.Start(ctx, name, append(options, otel.WithTimestamp(at))...)
}

func addEvents(s otel.Span, list []trace.Event) {
	for _, e := range list {
		if !e.At.IsZero() {
			s.AddEvent(e.Name, otel.WithTimestamp(e.At))
		}
	}
}

// finish ends a span; err is empty when there was none.
func finish(s otel.Span, at time.Time, err string) {
	if err != "" {
		s.SetStatus(codes.Error, err)
	}
	s.End(otel.WithTimestamp(at))
}
