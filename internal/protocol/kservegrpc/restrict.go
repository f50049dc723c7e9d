package kservegrpc

import (
	"strings"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	grpcstatus "google.golang.org/grpc/status"

	"shoal/internal/protocol/kserve"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// methodAPI maps methods to APIs. Reflection describes what the server offers,
// like its metadata.
var methodAPI = map[string]kserve.API{
	healthpb.Health_Check_FullMethodName: kserve.Health,
	healthpb.Health_List_FullMethodName:  kserve.Health,
	healthpb.Health_Watch_FullMethodName: kserve.Health,

	reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:    kserve.Metadata,
	reflectionalpha.ServerReflection_ServerReflectionInfo_FullMethodName: kserve.Metadata,

	pb.GRPCInferenceService_ServerLive_FullMethodName:                   kserve.Health,
	pb.GRPCInferenceService_ServerReady_FullMethodName:                  kserve.Health,
	pb.GRPCInferenceService_ModelReady_FullMethodName:                   kserve.Health,
	pb.GRPCInferenceService_ServerMetadata_FullMethodName:               kserve.Metadata,
	pb.GRPCInferenceService_ModelMetadata_FullMethodName:                kserve.Metadata,
	pb.GRPCInferenceService_ModelInfer_FullMethodName:                   kserve.Inference,
	pb.GRPCInferenceService_ModelStreamInfer_FullMethodName:             kserve.Inference,
	pb.GRPCInferenceService_ModelConfig_FullMethodName:                  kserve.ModelConfig,
	pb.GRPCInferenceService_ModelStatistics_FullMethodName:              kserve.Statistics,
	pb.GRPCInferenceService_RepositoryIndex_FullMethodName:              kserve.ModelRepository,
	pb.GRPCInferenceService_RepositoryModelLoad_FullMethodName:          kserve.ModelRepository,
	pb.GRPCInferenceService_RepositoryModelUnload_FullMethodName:        kserve.ModelRepository,
	pb.GRPCInferenceService_SystemSharedMemoryStatus_FullMethodName:     kserve.SharedMemory,
	pb.GRPCInferenceService_SystemSharedMemoryRegister_FullMethodName:   kserve.SharedMemory,
	pb.GRPCInferenceService_SystemSharedMemoryUnregister_FullMethodName: kserve.SharedMemory,
	pb.GRPCInferenceService_CudaSharedMemoryStatus_FullMethodName:       kserve.SharedMemory,
	pb.GRPCInferenceService_CudaSharedMemoryRegister_FullMethodName:     kserve.SharedMemory,
	pb.GRPCInferenceService_CudaSharedMemoryUnregister_FullMethodName:   kserve.SharedMemory,
	pb.GRPCInferenceService_TraceSetting_FullMethodName:                 kserve.Trace,
	pb.GRPCInferenceService_LogSettings_FullMethodName:                  kserve.Logging,
}

// restrictionPrefix stands before the header of a restriction.
const restrictionPrefix = "triton-grpc-protocol-"

// permit refuses a call to a restricted API that does not have the header. It
// is called before anything but the header is read.
func (s *Server) permit(method string, header func(name string) []string) *grpcstatus.Status {
	api, ok := methodAPI[method]
	if !ok || s.opt.Restrictions[api] == nil {
		return nil
	}
	r := s.opt.Restrictions[api]
	name := restrictionPrefix + strings.ToLower(r.Header)
	for _, v := range header(name) {
		if r.Opens([]byte(v)) {
			return nil
		}
	}
	return grpcstatus.Newf(codes.Unavailable, "This protocol is restricted, expecting header '%s'", name)
}
