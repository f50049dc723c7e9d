package kservegrpc

import (
	"context"

	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	"shoal/internal/reject"
	"shoal/internal/status"
)

// intercept stands around every unary call but inference.
func (s *Server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.finish(info.FullMethod, &err)
	resp, err = handler(ctx, req)
	if err != nil {
		s.rejectedCall(ctx, req, err)
	}
	return resp, err
}

// finish turns what a call ended with, a panic included, into what the client
// gets, and logs what it does not get. It must be deferred.
func (s *Server) finish(method string, err *error) {
	if p := recover(); p != nil {
		*err = status.Panicked(p)
	}
	if _, ok := grpcstatus.FromError(*err); ok {
		return // nil, or made by grpc itself
	}
	s.logFault(method, *err)
	*err = grpcError(*err)
}

// catch turns a panic into an error. It must be deferred.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = status.Panicked(p)
	}
}

// logFault logs an error that is not the client's, with what the client is not
// told.
func (s *Server) logFault(method string, err error) {
	if status.CodeOf(err) == status.Internal {
		s.log.Error("gRPC call failed", "method", method, "err", err)
	}
}

// admit lets an inference call in, or says why not. A call that a client began
// before it knew that the server closes is answered.
func (s *Server) admit(ctx context.Context) error {
	if !s.engine.Stopped() {
		return nil
	}
	s.rejected(ctx, "", "", errClosing)
	return errClosing
}

var errClosing = status.Rejectf(reject.NotReady, status.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.")
