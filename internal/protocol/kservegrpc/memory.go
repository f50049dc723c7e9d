package kservegrpc

import (
	"context"

	"shoal/internal/infer"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/shm"
	"shoal/internal/status"
)

// A regionParams is a tensor's position in shared memory.
type regionParams struct {
	named        bool
	name         string
	offset, size uint64
}

// findRegion reads the parameters of a tensor that are about shared memory.
func findRegion(ps []param, tensor string, memory *shm.Registry) (regionParams, error) {
	var g regionParams
	var wrong error // of the offset or the size, which matters only with a region
	sized, placed := false, false
	for i := range ps {
		p := &ps[i]
		switch p.Name {
		case "shared_memory_region":
			if !p.is(infer.ParamString) {
				return g, wrongRegion(p.Name, tensor, "string_param")
			}
			g.named, g.name = true, p.String
		case "shared_memory_offset":
			if !p.is(infer.ParamInt) {
				wrong = wrongRegion(p.Name, tensor, "int64_param")
			}
			placed, g.offset = true, uint64(p.Int)
		case "shared_memory_byte_size":
			if !p.is(infer.ParamInt) {
				wrong = wrongRegion(p.Name, tensor, "int64_param")
			}
			sized, g.size = true, uint64(p.Int)
		}
	}
	const alone = "'%s' can not be specified without 'shared_memory_region' parameter for tensor '%s'"
	switch {
	case g.named && wrong != nil:
		return g, wrong
	case g.named && !sized && memory == nil:
		return g, shm.ErrDisabled
	case g.named && !sized:
		return g, status.Errorf(status.InvalidArgument, "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '%s'", tensor)
	case !g.named && placed:
		return g, status.Errorf(status.InvalidArgument, alone, "shared_memory_offset", tensor)
	case !g.named && sized:
		return g, status.Errorf(status.InvalidArgument, alone, "shared_memory_byte_size", tensor)
	}
	return g, nil
}

func wrongRegion(name, tensor, want string) error {
	return status.Errorf(status.InvalidArgument, "invalid value type for '%s' parameter for tensor '%s', expected %s.", name, tensor, want)
}

// use finds the memory; the request keeps it.
func (g *regionParams) use(r *infer.Request, memory *shm.Registry) (*shm.Part, error) {
	p, err := memory.Use(g.name, g.offset, g.size)
	if err != nil {
		return nil, err
	}
	r.Keep(p)
	return p, nil
}

// memory returns the clients' shared memory.
func (s *service) memory() *shm.Registry { return s.server.engine.SharedMemory() }

// SystemSharedMemoryStatus lists the registered memory.
func (s *service) SystemSharedMemoryStatus(_ context.Context, req *pb.SystemSharedMemoryStatusRequest) (*pb.SystemSharedMemoryStatusResponse, error) {
	list, err := s.memory().Status(shm.System, req.GetName())
	if err != nil {
		return nil, err
	}
	resp := &pb.SystemSharedMemoryStatusResponse{Regions: make(map[string]*pb.SystemSharedMemoryStatusResponse_RegionStatus)}
	for _, g := range list {
		resp.Regions[g.Name] = &pb.SystemSharedMemoryStatusResponse_RegionStatus{Name: g.Name, Key: g.Key, Offset: g.Offset, ByteSize: g.Size}
	}
	return resp, nil
}

// SystemSharedMemoryRegister registers a client's memory.
func (s *service) SystemSharedMemoryRegister(_ context.Context, req *pb.SystemSharedMemoryRegisterRequest) (*pb.SystemSharedMemoryRegisterResponse, error) {
	if err := s.memory().Register(req.GetName(), req.GetKey(), req.GetOffset(), req.GetByteSize()); err != nil {
		return nil, err
	}
	return &pb.SystemSharedMemoryRegisterResponse{}, nil
}

// SystemSharedMemoryUnregister removes a region, or all.
func (s *service) SystemSharedMemoryUnregister(_ context.Context, req *pb.SystemSharedMemoryUnregisterRequest) (*pb.SystemSharedMemoryUnregisterResponse, error) {
	if err := s.memory().Unregister(shm.System, req.GetName()); err != nil {
		return nil, err
	}
	return &pb.SystemSharedMemoryUnregisterResponse{}, nil
}

// CudaSharedMemoryStatus lists the registered memory of GPUs.
func (s *service) CudaSharedMemoryStatus(_ context.Context, req *pb.CudaSharedMemoryStatusRequest) (*pb.CudaSharedMemoryStatusResponse, error) {
	list, err := s.memory().Status(shm.CUDA, req.GetName())
	if err != nil {
		return nil, err
	}
	resp := &pb.CudaSharedMemoryStatusResponse{Regions: make(map[string]*pb.CudaSharedMemoryStatusResponse_RegionStatus)}
	for _, g := range list {
		resp.Regions[g.Name] = &pb.CudaSharedMemoryStatusResponse_RegionStatus{Name: g.Name, DeviceId: uint64(g.Device), ByteSize: g.Size}
	}
	return resp, nil
}

// CudaSharedMemoryRegister registers a client's memory on a GPU.
func (s *service) CudaSharedMemoryRegister(_ context.Context, req *pb.CudaSharedMemoryRegisterRequest) (*pb.CudaSharedMemoryRegisterResponse, error) {
	if err := s.memory().RegisterCUDA(req.GetName(), req.GetRawHandle(), req.GetDeviceId(), req.GetByteSize()); err != nil {
		return nil, err
	}
	return &pb.CudaSharedMemoryRegisterResponse{}, nil
}

// CudaSharedMemoryUnregister removes a region of a GPU, or all.
func (s *service) CudaSharedMemoryUnregister(_ context.Context, req *pb.CudaSharedMemoryUnregisterRequest) (*pb.CudaSharedMemoryUnregisterResponse, error) {
	if err := s.memory().Unregister(shm.CUDA, req.GetName()); err != nil {
		return nil, err
	}
	return &pb.CudaSharedMemoryUnregisterResponse{}, nil
}
