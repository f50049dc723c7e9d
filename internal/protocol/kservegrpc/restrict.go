package kservegrpc

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	grpcstatus "google.golang.org/grpc/status"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// methodClass says which class a method belongs to. Reflection tells what the
// server offers, as its metadata do.
var methodClass = map[string]Class{
	healthpb.Health_Check_FullMethodName: ClassHealth,
	healthpb.Health_List_FullMethodName:  ClassHealth,
	healthpb.Health_Watch_FullMethodName: ClassHealth,

	reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:    ClassMetadata,
	reflectionalpha.ServerReflection_ServerReflectionInfo_FullMethodName: ClassMetadata,

	pb.GRPCInferenceService_ServerLive_FullMethodName:                   ClassHealth,
	pb.GRPCInferenceService_ServerReady_FullMethodName:                  ClassHealth,
	pb.GRPCInferenceService_ModelReady_FullMethodName:                   ClassHealth,
	pb.GRPCInferenceService_ServerMetadata_FullMethodName:               ClassMetadata,
	pb.GRPCInferenceService_ModelMetadata_FullMethodName:                ClassMetadata,
	pb.GRPCInferenceService_ModelInfer_FullMethodName:                   ClassInference,
	pb.GRPCInferenceService_ModelStreamInfer_FullMethodName:             ClassInference,
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

// permit refuses a call whose class is restricted and that does not bring the
// header for it. It is asked before anything but the header is read.
func (s *Server) permit(method string, header func(name string) []string) *grpcstatus.Status {
	r, ok := s.restricted[methodClass[method]]
	if !ok {
		return nil
	}
	name := restrictionPrefix + r.Key
	for _, v := range header(name) {
		if sameSecret(v, r.Value) {
			return nil
		}
	}
	return grpcstatus.Newf(codes.Unavailable, "This protocol is restricted, expecting header '%s'", name)
}

// sameSecret compares in a time that says nothing about the values, nor about
// their lengths.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// restrictions returns the restriction of each class that has one.
func restrictions(list []Restriction) (map[Class]Restriction, error) {
	by := make(map[Class]Restriction)
	for _, r := range list {
		for _, c := range r.Classes {
			if _, ok := by[c]; ok {
				return nil, fmt.Errorf("gRPC: protocol %q is restricted twice", c)
			}
			by[c] = r
		}
	}
	return by, nil
}
