package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"shoal/internal/model/modelpb"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

func stringReader(s string) io.Reader { return strings.NewReader(s) }

// answers are what Triton says over HTTP, with a field that nobody knows.
var answers = map[string]string{
	"/v2":                     `{"name":"triton","version":"2.51.0","extensions":["statistics"],"new":1}`,
	"/v2/models/m":            `{"name":"m","versions":["1"],"platform":"p","inputs":[{"name":"A","datatype":"FP32","shape":[-1,16]}],"outputs":[]}`,
	"/v2/models/m/config":     `{"name":"m","max_batch_size":8,"input":[{"name":"A","data_type":"TYPE_FP32","dims":[16],"optional":true}],"new":{}}`,
	"/v2/models/m/stats":      `{"model_stats":[{"name":"m","version":"1","inference_count":5,"inference_stats":{"queue":{"count":3,"ns":70}}}]}`,
	"/v2/models/m/versions/2": `{"name":"m","versions":["2"]}`,
}

// openHTTP returns an API to a server with those answers.
func openHTTP(t *testing.T) API {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		if !ok || r.Header.Get("X-Key") != "k" {
			w.WriteHeader(http.StatusNotFound)
			text = `{"error":"Request for unknown model: 'nosuch' is not found"}`
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	a := OpenHTTP(Options{Address: strings.TrimPrefix(s.URL, "http://"), Header: []Header{{"X-Key", "k"}}}, "")
	t.Cleanup(func() { a.Close() })
	return a
}

// service says the same over gRPC.
type service struct {
	pb.UnimplementedGRPCInferenceServiceServer
}

func (service) ServerMetadata(ctx context.Context, _ *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get("x-key"); len(got) != 1 {
		return nil, status.Error(codes.Internal, "no header")
	}
	return &pb.ServerMetadataResponse{Name: "triton", Version: "2.51.0", Extensions: []string{"statistics"}}, nil
}

func (service) ModelMetadata(_ context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	if r.Name != "m" {
		return nil, status.Error(codes.NotFound, "Request for unknown model: 'nosuch' is not found")
	}
	if r.Version == "2" {
		return &pb.ModelMetadataResponse{Name: "m", Versions: []string{"2"}}, nil
	}
	in := &pb.ModelMetadataResponse_TensorMetadata{Name: "A", Datatype: "FP32", Shape: []int64{-1, 16}}
	return &pb.ModelMetadataResponse{Name: "m", Versions: []string{"1"}, Inputs: []*pb.ModelMetadataResponse_TensorMetadata{in}}, nil
}

func (service) ModelConfig(context.Context, *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	return &pb.ModelConfigResponse{Config: &modelpb.ModelConfig{Name: "m", MaxBatchSize: 8, Input: []*modelpb.ModelInput{{Name: "A", Optional: true}}}}, nil
}

func (service) ModelStatistics(context.Context, *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	return &pb.ModelStatisticsResponse{ModelStats: []*pb.ModelStatistics{{
		Name: "m", Version: "1", InferenceCount: 5, InferenceStats: &pb.InferStatistics{Queue: &pb.StatisticDuration{Count: 3, Ns: 70}},
	}}}, nil
}

func openGRPC(t *testing.T) API {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterGRPCInferenceServiceServer(s, service{})
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(l) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	a, err := OpenGRPC(Options{Address: l.Addr().String(), Header: []Header{{"X-Key", "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestAPISaysWhatTheServerSays(t *testing.T) {
	for name, a := range map[string]API{"http": openHTTP(t), "grpc": openGRPC(t)} {
		ctx := t.Context()
		server, err := a.Server(ctx)
		if err != nil || server.Name != "triton" || server.Version != "2.51.0" || server.Extensions[0] != "statistics" {
			t.Errorf("%s server: got %v, %v", name, server, err)
		}
		model, err := a.Model(ctx, "m", "")
		if err != nil || model.Versions[0] != "1" || model.Inputs[0].Shape[0] != -1 || model.Inputs[0].Shape[1] != 16 {
			t.Errorf("%s model: got %v, %v", name, model, err)
		}
		if model, err = a.Model(ctx, "m", "2"); err != nil || model.Versions[0] != "2" {
			t.Errorf("%s version 2: got %v, %v", name, model, err)
		}
		config, err := a.Config(ctx, "m", "")
		if err != nil || config.MaxBatchSize != 8 || !config.Input[0].Optional {
			t.Errorf("%s config: got %v, %v", name, config, err)
		}
		stats, err := a.Statistics(ctx, "m", "")
		if err != nil || len(stats) != 1 || stats[0].InferenceCount != 5 || stats[0].InferenceStats.Queue.Ns != 70 {
			t.Errorf("%s statistics: got %v, %v", name, stats, err)
		}
	}
}

func TestAPIRepeatsTheServersWords(t *testing.T) {
	const want = "Request for unknown model: 'nosuch' is not found"
	for name, a := range map[string]API{"http": openHTTP(t), "grpc": openGRPC(t)} {
		if _, err := a.Model(t.Context(), "nosuch", ""); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func TestAPISaysThatNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Address: l.Addr().String()}
	l.Close()
	overGRPC, err := OpenGRPC(o)
	if err != nil {
		t.Fatal(err)
	}
	defer overGRPC.Close()
	for name, a := range map[string]API{"http": OpenHTTP(o, ""), "grpc": overGRPC} {
		if _, err := a.Model(t.Context(), "m", ""); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: got %v, want that it cannot be reached", name, err)
		}
	}
}

func TestAPISaysThatTheOtherProtocolIsSpoken(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := grpc.NewServer()
	t.Cleanup(served.Stop)
	go func() { _ = served.Serve(l) }() // ends with Stop
	overGRPC, err := OpenGRPC(Options{Address: plain.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer overGRPC.Close()
	overHTTP := OpenHTTP(Options{Address: l.Addr().String()}, "")
	for name, a := range map[string]API{"http to gRPC": overHTTP, "grpc to HTTP": overGRPC} {
		if _, err := a.Model(t.Context(), "m", ""); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: got %v, want that the connection broke", name, err)
		}
	}
}

func TestParseAddressTakesHostsAndURLs(t *testing.T) {
	for text, want := range map[string]Address{
		"localhost:8000":           {Host: "localhost:8000"},
		"localhost":                {Host: "localhost:8000"},
		"http://h:1":               {Host: "h:1"},
		"https://h/a/b/":           {Host: "h:8000", Prefix: "/a/b", TLS: true},
		"[::1]":                    {Host: "[::1]:8000"},
		"[::1]:9":                  {Host: "[::1]:9"},
		"example.com:8000/gateway": {Host: "example.com:8000", Prefix: "/gateway"},
	} {
		if got, err := ParseAddress(text, 8000); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "ftp://h", "http://", "h:1?x", "a b", "http:///x", "u@h"} {
		if got, err := ParseAddress(text, 8000); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestParseHeaderRefusesWhatWouldBreakARequest(t *testing.T) {
	if got, err := ParseHeader("X-Key:  a:b "); err != nil || got != (Header{"X-Key", "a:b"}) {
		t.Errorf("got %v, %v, want X-Key and a:b", got, err)
	}
	for _, line := range []string{"", "x", ": v", "a b: c", "a: b\r\nc: d"} {
		if got, err := ParseHeader(line); err == nil {
			t.Errorf("%q: got %v, want an error", line, got)
		}
	}
}
