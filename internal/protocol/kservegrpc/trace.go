package kservegrpc

import (
	"context"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
)

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
	now, err := s.server.engine.TraceSettings().Update(model, changes)
	if err != nil {
		return nil, err
	}
	resp := &pb.TraceSettingResponse{Settings: make(map[string]*pb.TraceSettingResponse_SettingValue, len(now))}
	for name, value := range now {
		resp.Settings[name] = &pb.TraceSettingResponse_SettingValue{Value: value}
	}
	return resp, nil
}
