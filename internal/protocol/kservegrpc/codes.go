package kservegrpc

import (
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"shoal/internal/status"
)

// grpcCodes says what our codes are called here.
var grpcCodes = [status.CodeCount]codes.Code{
	status.Unknown:           codes.Unknown,
	status.Internal:          codes.Internal,
	status.NotFound:          codes.NotFound,
	status.InvalidArgument:   codes.InvalidArgument,
	status.Unavailable:       codes.Unavailable,
	status.Unsupported:       codes.Unimplemented,
	status.AlreadyExists:     codes.AlreadyExists,
	status.Cancelled:         codes.Canceled,
	status.DeadlineExceeded:  codes.DeadlineExceeded,
	status.PermissionDenied:  codes.PermissionDenied,
	status.ResourceExhausted: codes.ResourceExhausted,
}

// grpcError returns an error of ours as the client gets it. A deadline has the
// text that clients' own libraries have for it, as either side may be the first
// to notice.
func grpcError(err error) error {
	code := status.CodeOf(err)
	if code == status.DeadlineExceeded {
		return grpcstatus.Error(codes.DeadlineExceeded, "Deadline Exceeded")
	}
	return grpcstatus.Error(grpcCodes[code], status.Public(err))
}
