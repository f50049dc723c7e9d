package kservegrpc

import (
	"context"
	"crypto/subtle"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
)

// methodClass says which class a unary method belongs to. Inference is not
// here: it is let in before its message is read.
var methodClass = map[string]Class{
	healthpb.Health_Check_FullMethodName: ClassHealth,
	healthpb.Health_List_FullMethodName:  ClassHealth,

	pb.GRPCInferenceService_ServerLive_FullMethodName:                   ClassHealth,
	pb.GRPCInferenceService_ServerReady_FullMethodName:                  ClassHealth,
	pb.GRPCInferenceService_ModelReady_FullMethodName:                   ClassHealth,
	pb.GRPCInferenceService_ServerMetadata_FullMethodName:               ClassMetadata,
	pb.GRPCInferenceService_ModelMetadata_FullMethodName:                ClassMetadata,
	pb.GRPCInferenceService_ModelConfig_FullMethodName:                  ClassModelConfig,
	pb.GRPCInferenceService_ModelStatistics_FullMethodName:              ClassStatistics,
	pb.GRPCInferenceService_RepositoryIndex_FullMethodName:              ClassRepository,
	pb.GRPCInferenceService_RepositoryModelLoad_FullMethodName:          ClassRepository,
	pb.GRPCInferenceService_RepositoryModelUnload_FullMethodName:        ClassRepository,
	pb.GRPCInferenceService_SystemSharedMemoryStatus_FullMethodName:     ClassSharedMemory,
	pb.GRPCInferenceService_SystemSharedMemoryRegister_FullMethodName:   ClassSharedMemory,
	pb.GRPCInferenceService_SystemSharedMemoryUnregister_FullMethodName: ClassSharedMemory,
	pb.GRPCInferenceService_CudaSharedMemoryStatus_FullMethodName:       ClassSharedMemory,
	pb.GRPCInferenceService_CudaSharedMemoryRegister_FullMethodName:     ClassSharedMemory,
	pb.GRPCInferenceService_CudaSharedMemoryUnregister_FullMethodName:   ClassSharedMemory,
	pb.GRPCInferenceService_TraceSetting_FullMethodName:                 ClassTrace,
	pb.GRPCInferenceService_LogSettings_FullMethodName:                  ClassLogging,
}

// intercept stands around every unary call but inference.
func (s *Server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.finish(info.FullMethod, &err)
	if err := s.permit(ctx, methodClass[info.FullMethod]); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// finish turns what a call ended with, a panic included, into what the client
// gets, and logs what it does not get. It must be deferred.
func (s *Server) finish(method string, err *error) {
	if p := recover(); p != nil {
		*err = panicked(p)
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
		*err = panicked(p)
	}
}

// panicked returns a panic as an error.
func panicked(p any) error {
	return status.Wrap(status.Internal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "internal error; the server's log has the details")
}

// logFault logs an error that is not the client's, with what the client is not
// told.
func (s *Server) logFault(method string, err error) {
	if status.CodeOf(err) == status.Internal {
		s.log.Error("gRPC call failed", "method", method, "err", err)
	}
}

// permit refuses a call whose class is restricted and that does not bring the
// header for it.
func (s *Server) permit(ctx context.Context, class Class) error {
	r, ok := s.restricted[class]
	if !ok {
		return nil
	}
	name := restrictionPrefix + r.Key
	for _, v := range metadata.ValueFromIncomingContext(ctx, name) {
		if subtle.ConstantTimeCompare([]byte(v), []byte(r.Value)) == 1 {
			return nil
		}
	}
	return status.Errorf(status.Unavailable, "This protocol is restricted, expecting header '%s'", name)
}

// admit lets an inference call in, or says why not.
func (s *Server) admit(ctx context.Context) error {
	select {
	case <-s.closing:
		return errClosing
	default:
	}
	if s.engine.Stopping() {
		return errClosing
	}
	return s.permit(ctx, ClassInference)
}

var errClosing = status.Errorf(status.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.")
