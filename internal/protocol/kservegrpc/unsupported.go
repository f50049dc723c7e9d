package kservegrpc

import (
	"context"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
)

// The calls of the service that the server does not support. Each returns an
// error that says so.

var errTrace = status.Errorf(status.Unsupported, "trace settings are not supported by this server")

// TraceSetting is refused.
func (*service) TraceSetting(context.Context, *pb.TraceSettingRequest) (*pb.TraceSettingResponse, error) {
	return nil, errTrace
}
