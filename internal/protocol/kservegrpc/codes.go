package kservegrpc

import (
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"shoal/internal/status"
)

// grpcCodes says what our codes are called here.
var grpcCodes = [status.CodeCount]codes.Code{
	status.Unknown:          codes.Unknown,
	status.Internal:         codes.Internal,
	status.NotFound:         codes.NotFound,
	status.InvalidArgument:  codes.InvalidArgument,
	status.Unavailable:      codes.Unavailable,
	status.Unsupported:      codes.Unimplemented,
	status.AlreadyExists:    codes.AlreadyExists,
	status.Cancelled:        codes.Canceled,
	status.DeadlineExceeded: codes.DeadlineExceeded,
	status.PermissionDenied: codes.PermissionDenied,
}

// grpcError returns an error of ours as the client gets it.
func grpcError(err error) error {
	return grpcstatus.Error(grpcCodes[status.CodeOf(err)], status.Public(err))
}
