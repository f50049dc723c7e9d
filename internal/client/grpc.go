package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"shoal/internal/model/modelpb"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

type grpcAPI struct {
	conn   *grpc.ClientConn
	header metadata.MD
	pb.GRPCInferenceServiceClient
}

// OpenGRPC returns an API over gRPC. It connects with the first request.
func OpenGRPC(o Options) (API, error) {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	conn, err := grpc.NewClient(Target(o.Address), grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	header := metadata.MD{}
	for _, h := range o.Header {
		header.Append(strings.ToLower(h.Name), h.Value)
	}
	return &grpcAPI{conn, header, pb.NewGRPCInferenceServiceClient(conn)}, nil
}

func (c *grpcAPI) Server(ctx context.Context) (*pb.ServerMetadataResponse, error) {
	ctx, cancel := c.question(ctx)
	defer cancel()
	m, err := c.ServerMetadata(ctx, &pb.ServerMetadataRequest{})
	return m, plain(err)
}

func (c *grpcAPI) Model(ctx context.Context, name, version string) (*pb.ModelMetadataResponse, error) {
	ctx, cancel := c.question(ctx)
	defer cancel()
	m, err := c.ModelMetadata(ctx, &pb.ModelMetadataRequest{Name: name, Version: version})
	return m, plain(err)
}

func (c *grpcAPI) Config(ctx context.Context, name, version string) (*modelpb.ModelConfig, error) {
	ctx, cancel := c.question(ctx)
	defer cancel()
	m, err := c.ModelConfig(ctx, &pb.ModelConfigRequest{Name: name, Version: version})
	return m.GetConfig(), plain(err)
}

func (c *grpcAPI) Statistics(ctx context.Context, name, version string) ([]*pb.ModelStatistics, error) {
	ctx, cancel := c.question(ctx)
	defer cancel()
	m, err := c.ModelStatistics(ctx, &pb.ModelStatisticsRequest{Name: name, Version: version})
	return m.GetModelStats(), plain(err)
}

func (c *grpcAPI) Names(ctx context.Context) ([]string, error) {
	ctx, cancel := c.question(ctx)
	defer cancel()
	m, err := c.RepositoryIndex(ctx, &pb.RepositoryIndexRequest{})
	return namesOf(m.GetModels()), plain(err)
}

// namesOf returns the names of models, each once.
func namesOf(list []*pb.RepositoryIndexResponse_ModelIndex) []string {
	var names []string
	for _, m := range list {
		if !slices.Contains(names, m.GetName()) {
			names = append(names, m.GetName())
		}
	}
	return names
}

func (c *grpcAPI) Register(ctx context.Context, name, key string, size int) error {
	ctx, cancel := c.question(ctx)
	defer cancel()
	_, err := c.SystemSharedMemoryRegister(ctx, &pb.SystemSharedMemoryRegisterRequest{Name: name, Key: key, ByteSize: uint64(size)})
	return plain(err)
}

func (c *grpcAPI) Unregister(ctx context.Context, name string) error {
	ctx, cancel := c.question(ctx)
	defer cancel()
	_, err := c.SystemSharedMemoryUnregister(ctx, &pb.SystemSharedMemoryUnregisterRequest{Name: name})
	return plain(err)
}

func (c *grpcAPI) Trace(ctx context.Context, settings map[string]string) error {
	ctx, cancel := c.question(ctx)
	defer cancel()
	req := &pb.TraceSettingRequest{Settings: make(map[string]*pb.TraceSettingRequest_SettingValue)}
	for name, value := range settings {
		req.Settings[name] = &pb.TraceSettingRequest_SettingValue{Value: []string{value}}
	}
	_, err := c.TraceSetting(ctx, req)
	return plain(err)
}

func (c *grpcAPI) Close() error { return c.conn.Close() }

func (c *grpcAPI) question(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	return metadata.NewOutgoingContext(ctx, c.header), cancel
}

// plain removes gRPC's wrapping from an error.
func plain(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && strings.Contains(s.Message(), "dial") {
		return fmt.Errorf("%w: %s", ErrUnreachable, s.Message())
	}
	if s.Code() == codes.Unavailable && strings.HasPrefix(s.Message(), "connection error") { // from gRPC itself, not from a server
		return fmt.Errorf("%w: %s", ErrBroken, s.Message())
	}
	return errors.New(s.Message())
}
