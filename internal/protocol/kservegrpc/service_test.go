package kservegrpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"

	"shoal/internal/protocol/compression"
	"shoal/internal/protocol/kserve"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/shm"
)

func TestHealthFollowsTheServersReadiness(t *testing.T) {
	s := startServer(t, Options{})
	client := healthpb.NewHealthClient(s.conn)
	for _, name := range []string{"", "inference.GRPCInferenceService", "anything"} {
		resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("check %q: got %v, %v, want SERVING", name, resp, err)
		}
	}
	list, err := client.List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil || list.Statuses[""].GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("list: got %v, %v, want SERVING", list, err)
	}
	watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("watch: got %v, %v, want SERVING", resp, err)
	}
	if err := s.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || resp.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("check of a stopping engine: got %v, %v, want NOT_SERVING", resp, err)
	}
	if ready, err := s.client.ServerReady(t.Context(), &pb.ServerReadyRequest{}); err != nil || ready.Ready {
		t.Errorf("ready of a stopping engine: got %v, %v, want false", ready, err)
	}
	if _, err := s.client.ModelInfer(t.Context(), floatsRequest(1)); grpcstatus.Convert(err).Message() != errClosing.Error() {
		t.Errorf("inference on a stopping engine: got %v, want %v", err, errClosing)
	}
	go func() { _ = s.Close(context.Background()) }()
	for {
		if _, err := watch.Recv(); err != nil { // a change may come first
			if grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("watch of a closing server: got %v, want %v", err, codes.Unavailable)
			}
			return
		}
	}
}

func TestReflectionListsTheService(t *testing.T) {
	s := startServer(t, Options{})
	const want = "inference.GRPCInferenceService"
	v1, err := reflectionpb.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := v1.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: want}}); err != nil {
		t.Fatal(err)
	}
	if resp, err := v1.Recv(); err != nil || len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("v1: got %v, %v, want the service's file", resp, err)
	}
	alpha, err := reflectionalphapb.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	//lint:ignore SA1019 clients that know only the older service are still about
	if err := alpha.Send(&reflectionalphapb.ServerReflectionRequest{MessageRequest: &reflectionalphapb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := alpha.Recv()
	if err != nil || !strings.Contains(resp.String(), want) {
		t.Errorf("v1alpha: got %v, %v, want %s in the list", resp, err, want)
	}
	_ = v1.CloseSend()
	_ = alpha.CloseSend()
}

func TestEveryMethodHasAClassThatCanBeRestricted(t *testing.T) {
	var all kserve.Restrictions
	for api := range all {
		all[api] = &kserve.Restriction{Header: "Key-" + kserve.API(api).String(), Value: "open"}
	}
	s := startServer(t, Options{Restrictions: all})
	for _, m := range pb.GRPCInferenceService_ServiceDesc.Methods {
		err := s.conn.Invoke(t.Context(), "/inference.GRPCInferenceService/"+m.MethodName, []byte{}, new([]byte), grpc.ForceCodecV2(rawCodec{}))
		if st := grpcstatus.Convert(err); st.Code() != codes.Unavailable || !strings.HasPrefix(st.Message(), "This protocol is restricted, expecting header 'triton-grpc-protocol-key-") {
			t.Errorf("%s: got %v, want it restricted", m.MethodName, err)
		}
	}
	stream, err := s.client.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("ModelStreamInfer: got %v, want it restricted", err)
	}
	for service, info := range s.grpc.GetServiceInfo() { // reflection among them
		for _, m := range info.Methods {
			name := "/" + service + "/" + m.Name
			if _, ok := methodAPI[name]; !ok {
				t.Errorf("%s: got no API, want one", name)
			}
		}
	}
	health := healthpb.NewHealthClient(s.conn)
	if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("health check: got %v, want it restricted", err)
	}

	with := func(value string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "triton-grpc-protocol-key-inference", value)
	}
	_, err = s.client.ModelInfer(with("wrong"), floatsRequest(1))
	if want := "This protocol is restricted, expecting header 'triton-grpc-protocol-key-inference'"; grpcstatus.Convert(err).Message() != want {
		t.Errorf("wrong value: got %v, want %q", err, want)
	}
	if _, err := s.client.ModelInfer(with("open"), floatsRequest(1)); err != nil {
		t.Errorf("right value: got %v, want an answer", err)
	}
}

func TestUnsupportedCallsSaySo(t *testing.T) {
	s := startServer(t, Options{})
	for method, want := range map[string]string{
		"SystemSharedMemoryStatus": shm.ErrDisabled.Error(), "SystemSharedMemoryRegister": shm.ErrDisabled.Error(),
		"SystemSharedMemoryUnregister": shm.ErrDisabled.Error(), "CudaSharedMemoryStatus": shm.ErrDisabled.Error(),
		"CudaSharedMemoryRegister": shm.ErrDisabled.Error(), "CudaSharedMemoryUnregister": shm.ErrDisabled.Error(),
		"LogSettings": errLog.Error(),
	} {
		err := s.conn.Invoke(t.Context(), "/inference.GRPCInferenceService/"+method, []byte{}, new([]byte), grpc.ForceCodecV2(rawCodec{}))
		if st := grpcstatus.Convert(err); st.Code() != codes.Unimplemented || st.Message() != want {
			t.Errorf("%s: got %v, want %q", method, err, want)
		}
	}
}

func TestRepositoryCallsCheckTheirParameters(t *testing.T) {
	s := startServer(t, Options{})
	load := func(name string, p *pb.ModelRepositoryParameter) error {
		_, err := s.client.RepositoryModelLoad(t.Context(), &pb.RepositoryModelLoadRequest{ModelName: "m", Parameters: map[string]*pb.ModelRepositoryParameter{name: p}})
		return err
	}
	text := &pb.ModelRepositoryParameter{ParameterChoice: &pb.ModelRepositoryParameter_StringParam{StringParam: "{}"}}
	_, named := s.client.RepositoryIndex(t.Context(), &pb.RepositoryIndexRequest{RepositoryName: "r"})
	_, unload := s.client.RepositoryModelUnload(t.Context(), &pb.RepositoryModelUnloadRequest{
		ModelName: "m", Parameters: map[string]*pb.ModelRepositoryParameter{"unload_dependents": text},
	})
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"unknown parameter", load("other", text), "unrecognized load parameter 'other'."},
		{"config of the wrong type", load("config", &pb.ModelRepositoryParameter{}), "invalid value type for load parameter 'config', expected string_param."},
		{"file of the wrong type", load("file:1/model.onnx", text), "invalid value type for load parameter 'file:1/model.onnx', expected bytes_param."},
		{"config", load("config", text), "explicit model load / unload is not allowed if polling is enabled"},
		{"repository by name", named, "'repository_name' specification is not supported"},
		{"unload_dependents of the wrong type", unload, "invalid value type for 'unload_dependents' parameter, expected bool_param."},
	} {
		if got := grpcstatus.Convert(c.err).Message(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestIndexAndStatisticsListTheModels(t *testing.T) {
	s := startServer(t, Options{})
	if _, err := s.client.ModelInfer(t.Context(), floatsRequest(1)); err != nil {
		t.Fatal(err)
	}
	md, err := s.client.ServerMetadata(t.Context(), &pb.ServerMetadataRequest{})
	if err != nil || md.Name != "triton" || md.Version != "2.51.0" || len(md.Extensions) == 0 {
		t.Errorf("server metadata: got %v, %v, want triton 2.51.0", md, err)
	}
	index, err := s.client.RepositoryIndex(t.Context(), &pb.RepositoryIndexRequest{Ready: true})
	if err != nil || len(index.Models) != len(testModels) || index.Models[0].Version != "1" || index.Models[0].State != "READY" {
		t.Errorf("index: got %v, %v, want %d models ready", index, err, len(testModels))
	}
	st, err := s.client.ModelStatistics(t.Context(), &pb.ModelStatisticsRequest{Name: "floats", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	got := st.ModelStats[0]
	if got.Version != "1" || got.InferenceCount != 1 || got.ExecutionCount != 1 || got.InferenceStats.Success.Count != 1 || got.BatchStats[0].BatchSize != 1 {
		t.Errorf("statistics: got %v, want one inference", got)
	}
	all, err := s.client.ModelStatistics(t.Context(), &pb.ModelStatisticsRequest{})
	if err != nil || len(all.ModelStats) != len(testModels) {
		t.Errorf("statistics of all: got %v, %v, want %d models", all, err, len(testModels))
	}
}

func TestPanicOfAHandlerIsAnInternalError(t *testing.T) {
	s := &Server{log: testLog(t)}
	_, err := s.intercept(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("oh") })
	if st := grpcstatus.Convert(err); st.Code() != codes.Internal || strings.Contains(st.Message(), "oh") {
		t.Errorf("got %v, want %v without the panic's text", err, codes.Internal)
	}
}

// sizes counts the bytes of answers on the wire.
type sizes struct{ wire, plain int }

func (*sizes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*sizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*sizes) HandleConn(context.Context, stats.ConnStats)                       {}
func (s *sizes) HandleRPC(_ context.Context, st stats.RPCStats) {
	if in, ok := st.(*stats.InPayload); ok {
		s.wire, s.plain = in.CompressedLength, in.Length
	}
}

func TestResponsesAreCompressedAsConfigured(t *testing.T) {
	for _, c := range []struct {
		name       string
		level      string
		request    string
		compressed bool
	}{
		{"not asked for", "none", encoding.Identity, false},
		{"not asked for, request compressed", "none", gzipName, false},
		{"not asked for, request deflated", "none", "deflate", false},
		{"asked for", "low", encoding.Identity, true},
		{"asked for, request compressed", "high", gzipName, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			level, err := ParseCompression(c.level)
			if err != nil {
				t.Fatal(err)
			}
			s := startServer(t, Options{Compression: level})
			var n sizes
			conn := dial(t, s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&n))
			req := floatsRequest(5000)
			clear(req.RawInputContents[0])
			client := pb.NewGRPCInferenceServiceClient(conn)
			resp, err := client.ModelInfer(t.Context(), req, grpc.UseCompressor(c.request))
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.RawOutputContents[0]) != 20000 || (n.wire < n.plain) != c.compressed {
				t.Errorf("got %d bytes on the wire for %d, want compressed %v", n.wire, n.plain, c.compressed)
			}
			stream, err := client.ModelStreamInfer(t.Context(), grpc.UseCompressor(c.request))
			if err != nil {
				t.Fatal(err)
			}
			sendAll(t, stream, req)
			receive(t, stream)
			if (n.wire < n.plain) != c.compressed {
				t.Errorf("stream: got %d bytes on the wire for %d, want compressed %v", n.wire, n.plain, c.compressed)
			}
		})
	}
	if _, err := ParseCompression("best"); err == nil {
		t.Error("level best: got no error, want one")
	}
}

// brokenGzip sends what no gzip reader takes, under gzip's name.
type brokenGzip struct{ data []byte }

func (c brokenGzip) Do(w io.Writer, _ []byte) error { _, err := w.Write(c.data); return err }
func (brokenGzip) Type() string                     { return gzipName }

func TestBrokenCompressionIsRefused(t *testing.T) {
	s := startServer(t, Options{})
	whole := gzipped(t, mustMarshal(t, floatsRequest(1000)))
	for name, data := range map[string][]byte{"garbage": []byte("garbage"), "nothing": {1}, "half": whole[:len(whole)/2]} {
		//lint:ignore SA1019 there is no other way to send a broken message
		conn := dial(t, s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithCompressor(brokenGzip{data: data}))
		_, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(t.Context(), floatsRequest(1))
		if grpcstatus.Code(err) != codes.Internal {
			t.Errorf("%s: got %v, want %v", name, err, codes.Internal)
		}
	}
	if _, err := s.client.ModelInfer(t.Context(), floatsRequest(1), grpc.UseCompressor(gzipName)); err != nil {
		t.Errorf("a whole message after the broken ones: got %v, want an answer", err)
	}
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := compressor(compression.Gzip).Compress(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestServerListensOnAUnixSocket(t *testing.T) {
	s := startServer(t, Options{})
	path := filepath.Join(t.TempDir(), "grpc.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	second := Start(Options{}, s.engine, l)
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(t.Context(), floatsRequest(1)); err != nil {
		t.Errorf("got %v, want an answer", err)
	}
	_ = conn.Close()
	if err := second.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestCloseEndsWhatIsLeftWhenItsTimeIsUp(t *testing.T) {
	s := startServer(t, Options{})
	ended := make(chan error, 1)
	go func() {
		_, err := s.client.ModelInfer(context.Background(), gatedRequest(1))
		ended <- err
	}()
	<-s.gate.entered
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	cancel()
	if err := <-ended; grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("the call: got %v, want %v", err, codes.Unavailable)
	}
	if err := <-closed; !errors.Is(err, context.Canceled) { // though the model runs on
		t.Errorf("close: got %v, want %v", err, context.Canceled)
	}
	s.gate.pass(1, nil)
}
