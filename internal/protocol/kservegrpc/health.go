package kservegrpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// health is the standard health service. All services are as healthy as the
// server is ready, whatever their name.
type health struct {
	healthpb.UnimplementedHealthServer
	server *Server
}

func (h *health) status() healthpb.HealthCheckResponse_ServingStatus {
	select {
	case <-h.server.closing:
		return healthpb.HealthCheckResponse_NOT_SERVING
	default:
	}
	if h.server.engine.Ready() {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// Check answers for any service.
func (h *health) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: h.status()}, nil
}

// List answers for the server as a whole and for the inference service.
func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	resp := &healthpb.HealthListResponse{Statuses: make(map[string]*healthpb.HealthCheckResponse)}
	for _, name := range []string{"", "inference.GRPCInferenceService"} {
		resp.Statuses[name] = &healthpb.HealthCheckResponse{Status: h.status()}
	}
	return resp, nil
}

// watchInterval is how soon a watcher learns of a change.
const watchInterval = time.Second

// Watch sends the state now and whenever it changes, until the client or the
// server ends.
func (h *health) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) (err error) {
	s := h.server
	defer s.finish("Watch", &err)
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		if now := h.status(); now != last {
			last = now
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.closing:
			return errClosing
		}
	}
}
