package kservegrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
	"shoal/internal/trace"
)

// trace begins to trace a message that was awaited since then, if it is one of those
// that are traced. Whoever gets the message must end its trace.
func (s *Server) trace(ctx context.Context, m *message, since time.Time) {
	tracer := s.engine.Tracer()
	var caller trace.Parent
	if tracer.Propagates() {
		caller = trace.ParseParent(header(ctx, "traceparent"), header(ctx, "tracestate"))
	}
	m.trace = tracer.Sample(m.model, trace.GRPC, caller, since)
	m.trace.ReadDone()
	m.req.Trace = m.trace.First()
}

// header returns a value of the call's metadata; empty when there is none.
func header(ctx context.Context, name string) string {
	if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// traceStart returns the time from which on a request is awaited, if any are traced.
func (s *Server) traceStart() (t time.Time) {
	if s.engine.Tracer().On() {
		t = time.Now()
	}
	return t
}

// TraceSetting shows the trace settings of the server or a model, after it has
// changed those that are given.
func (s *service) TraceSetting(_ context.Context, req *pb.TraceSettingRequest) (*pb.TraceSettingResponse, error) {
	model := req.GetModelName()
	if !s.server.engine.Traceable(model) {
		return nil, status.Errorf(status.InvalidArgument, "Request for unknown model : %s", model)
	}
	changes := make(map[string][]string, len(req.GetSettings()))
	for name, value := range req.GetSettings() {
		changes[name] = value.GetValue()
	}
	now, err := s.server.engine.Tracer().Update(model, changes)
	if err != nil {
		return nil, err
	}
	resp := &pb.TraceSettingResponse{Settings: make(map[string]*pb.TraceSettingResponse_SettingValue, len(now))}
	for _, setting := range now {
		resp.Settings[setting.Name] = &pb.TraceSettingResponse_SettingValue{Value: setting.Value}
	}
	return resp, nil
}
