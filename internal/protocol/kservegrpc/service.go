package kservegrpc

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"shoal/internal/engine"
	"shoal/internal/model"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
)

// serviceDesc returns the generated description of the service with our own
// handlers for inference.
func (s *Server) serviceDesc() *grpc.ServiceDesc {
	desc := pb.GRPCInferenceService_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		if desc.Methods[i].MethodName == "ModelInfer" {
			desc.Methods[i].Handler = s.modelInfer
		}
	}
	desc.Streams = slices.Clone(desc.Streams)
	for i := range desc.Streams {
		if desc.Streams[i].StreamName == "ModelStreamInfer" {
			desc.Streams[i].Handler = s.modelStreamInfer
		}
	}
	return &desc
}

// service has the calls about the server and its models. The server's
// interceptor maps its errors.
type service struct {
	pb.UnimplementedGRPCInferenceServiceServer
	server *Server
}

// ServerLive reports whether the server is running.
func (s *service) ServerLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: s.server.engine.Live()}, nil
}

// ServerReady reports whether the server accepts requests.
func (s *service) ServerReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: s.server.engine.Ready()}, nil
}

// ModelReady reports whether a model accepts requests; an unknown one does not.
func (s *service) ModelReady(_ context.Context, req *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	n, err := parseVersion(req.GetVersion())
	if err != nil {
		return nil, err
	}
	return &pb.ModelReadyResponse{Ready: s.server.engine.ModelReady(req.GetName(), n)}, nil
}

// ServerMetadata returns the server's name, version and extensions.
func (s *service) ServerMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	e := s.server.engine
	return &pb.ServerMetadataResponse{Name: e.ServerName(), Version: e.ServerVersion(), Extensions: e.Extensions()}, nil
}

// ModelMetadata returns a model's inputs and outputs.
func (s *service) ModelMetadata(_ context.Context, req *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	n, err := parseVersion(req.GetVersion())
	if err != nil {
		return nil, err
	}
	md, err := s.server.engine.Metadata(req.GetName(), n)
	if err != nil {
		return nil, err
	}
	resp := &pb.ModelMetadataResponse{
		Name: md.Name, Platform: md.Platform,
		Inputs: tensorMetadata(md.Inputs), Outputs: tensorMetadata(md.Outputs),
	}
	for _, v := range md.Versions {
		resp.Versions = append(resp.Versions, strconv.FormatInt(v, 10))
	}
	return resp, nil
}

func tensorMetadata(ts []model.Tensor) []*pb.ModelMetadataResponse_TensorMetadata {
	out := make([]*pb.ModelMetadataResponse_TensorMetadata, len(ts))
	for i := range ts {
		out[i] = &pb.ModelMetadataResponse_TensorMetadata{Name: ts[i].Name, Datatype: ts[i].Type.String(), Shape: ts[i].Full}
	}
	return out
}

// ModelConfig returns a model's complete configuration.
func (s *service) ModelConfig(_ context.Context, req *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	n, err := parseVersion(req.GetVersion())
	if err != nil {
		return nil, err
	}
	cfg, err := s.server.engine.Config(req.GetName(), n)
	if err != nil {
		return nil, err
	}
	return &pb.ModelConfigResponse{Config: cfg}, nil
}

var errRepositoryName = status.Errorf(status.Unsupported, "'repository_name' specification is not supported")

// RepositoryIndex lists the models in the repositories.
func (s *service) RepositoryIndex(_ context.Context, req *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	if req.GetRepositoryName() != "" {
		return nil, errRepositoryName
	}
	resp := &pb.RepositoryIndexResponse{}
	for _, e := range s.server.engine.Index(req.GetReady()) {
		m := &pb.RepositoryIndexResponse_ModelIndex{Name: e.Name, State: string(e.State), Reason: e.Reason}
		if e.Version != engine.NoVersion {
			m.Version = strconv.FormatInt(e.Version, 10)
		}
		resp.Models = append(resp.Models, m)
	}
	return resp, nil
}

// RepositoryModelLoad loads a model, or loads it again.
func (s *service) RepositoryModelLoad(ctx context.Context, req *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	if req.GetRepositoryName() != "" {
		return nil, errRepositoryName
	}
	o, err := loadOverride(req.GetParameters())
	if err != nil {
		return nil, err
	}
	if err := s.server.engine.Load(ctx, req.GetModelName(), o); err != nil {
		return nil, err
	}
	return &pb.RepositoryModelLoadResponse{}, nil
}

// loadOverride reads the parameters of a load.
func loadOverride(params map[string]*pb.ModelRepositoryParameter) (o engine.Override, err error) {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		path, isFile := strings.CutPrefix(name, "file:")
		config, isString := params[name].GetParameterChoice().(*pb.ModelRepositoryParameter_StringParam)
		content, isBytes := params[name].GetParameterChoice().(*pb.ModelRepositoryParameter_BytesParam)
		switch {
		case isFile && isBytes:
			if o.Files == nil {
				o.Files = make(map[string][]byte)
			}
			o.Files[path] = content.BytesParam
		case isFile:
			return o, errLoadParam(name, "bytes_param")
		case name != "config":
			return o, status.Errorf(status.InvalidArgument, "unrecognized load parameter '%s'.", name)
		case !isString:
			return o, errLoadParam(name, "string_param")
		default:
			o.Config = config.StringParam
		}
	}
	return o, nil
}

func errLoadParam(name, want string) error {
	return status.Errorf(status.InvalidArgument, "invalid value type for load parameter '%s', expected %s.", name, want)
}

// RepositoryModelUnload unloads a model.
func (s *service) RepositoryModelUnload(ctx context.Context, req *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	if req.GetRepositoryName() != "" {
		return nil, errRepositoryName
	}
	dependents := false
	if p, ok := req.GetParameters()["unload_dependents"]; ok {
		choice, ok := p.GetParameterChoice().(*pb.ModelRepositoryParameter_BoolParam)
		if !ok {
			return nil, wrongType("unload_dependents", "bool_param")
		}
		dependents = choice.BoolParam
	}
	if err := s.server.engine.Unload(ctx, req.GetModelName(), dependents); err != nil {
		return nil, err
	}
	return &pb.RepositoryModelUnloadResponse{}, nil
}
