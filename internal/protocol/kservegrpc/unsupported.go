package kservegrpc

import (
	"context"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
)

// The calls of the service that the server knows and does not offer. Each says
// so in a sentence.

var (
	errTrace = status.Errorf(status.Unsupported, "trace settings are not supported by this server")
	errLog   = status.Errorf(status.Unsupported, "log settings cannot be changed by clients of this server; set them on its command line")
)

// SystemSharedMemoryStatus is refused.
func (*service) SystemSharedMemoryStatus(context.Context, *pb.SystemSharedMemoryStatusRequest) (*pb.SystemSharedMemoryStatusResponse, error) {
	return nil, errSharedMemory
}

// SystemSharedMemoryRegister is refused.
func (*service) SystemSharedMemoryRegister(context.Context, *pb.SystemSharedMemoryRegisterRequest) (*pb.SystemSharedMemoryRegisterResponse, error) {
	return nil, errSharedMemory
}

// SystemSharedMemoryUnregister is refused.
func (*service) SystemSharedMemoryUnregister(context.Context, *pb.SystemSharedMemoryUnregisterRequest) (*pb.SystemSharedMemoryUnregisterResponse, error) {
	return nil, errSharedMemory
}

// CudaSharedMemoryStatus is refused.
func (*service) CudaSharedMemoryStatus(context.Context, *pb.CudaSharedMemoryStatusRequest) (*pb.CudaSharedMemoryStatusResponse, error) {
	return nil, errSharedMemory
}

// CudaSharedMemoryRegister is refused.
func (*service) CudaSharedMemoryRegister(context.Context, *pb.CudaSharedMemoryRegisterRequest) (*pb.CudaSharedMemoryRegisterResponse, error) {
	return nil, errSharedMemory
}

// CudaSharedMemoryUnregister is refused.
func (*service) CudaSharedMemoryUnregister(context.Context, *pb.CudaSharedMemoryUnregisterRequest) (*pb.CudaSharedMemoryUnregisterResponse, error) {
	return nil, errSharedMemory
}

// TraceSetting is refused.
func (*service) TraceSetting(context.Context, *pb.TraceSettingRequest) (*pb.TraceSettingResponse, error) {
	return nil, errTrace
}

// LogSettings is refused.
func (*service) LogSettings(context.Context, *pb.LogSettingsRequest) (*pb.LogSettingsResponse, error) {
	return nil, errLog
}
