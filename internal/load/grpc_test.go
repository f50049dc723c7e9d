package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"shoal/internal/client"
	"shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// An echoService answers with what it got; every refuseth request it refuses.
type echoService struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
	served atomic.Int64
	refuse int64
}

func (s *echoService) ModelInfer(_ context.Context, r *inferencepb.ModelInferRequest) (*inferencepb.ModelInferResponse, error) {
	if n := s.served.Add(1); s.refuse > 0 && n%s.refuse == 0 {
		return nil, status.Error(codes.Unavailable, "no")
	}
	return &inferencepb.ModelInferResponse{ModelName: r.ModelName, RawOutputContents: r.RawInputContents}, nil
}

func serveGRPC(t *testing.T, s inferencepb.GRPCInferenceServiceServer) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	inferencepb.RegisterGRPCInferenceServiceServer(server, s)
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return l.Addr().String()
}

// testRequest returns a message with one tensor of n numbers, and their bytes.
func testRequest(t *testing.T, n int) (message, raw []byte) {
	t.Helper()
	for i := range n {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)+0.5))
	}
	r := client.Request{Model: "m", Inputs: []client.Tensor{{Name: "INPUT0", Type: tensor.FP32, Shape: tensor.Shape{1, int64(n)}, Data: raw}}}
	message, err := client.EncodeGRPC(&r)
	if err != nil {
		t.Fatal(err)
	}
	return message, raw
}

func TestGRPCCallersGetTheirAnswers(t *testing.T) {
	for _, callers := range []int{1, 16, 64} {
		service := &echoService{}
		request, raw := testRequest(t, 150_528)
		checked := 0
		check := func(message []byte) error {
			var r inferencepb.ModelInferResponse
			if err := proto.Unmarshal(message, &r); err != nil {
				return err
			}
			if r.ModelName == "m" && bytes.Equal(r.RawOutputContents[0], raw) {
				checked++
			}
			return nil
		}
		g := open(t, NewGRPC(serveGRPC(t, service), request, check), callers)
		r, err := g.Run(t.Context(), Limit{Requests: 50})
		if err != nil || r.Requests != 50 || r.Failed() != 0 {
			t.Errorf("%d callers: got %d answers, %v, %v, want 50 without errors", callers, r.Requests, r.Errors, err)
		}
		if checked != callers || service.served.Load() != int64(50+callers) {
			t.Errorf("%d callers: got %d good first answers and %d requests, want %d and %d",
				callers, checked, service.served.Load(), callers, 50+callers)
		}
	}
}

func TestGRPCErrorsAreCountedByCode(t *testing.T) {
	request, _ := testRequest(t, 16)
	byHand, err := NewH2(serveGRPC(t, &echoService{refuse: 4}), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]Target{
		"grpc-go": NewGRPC(serveGRPC(t, &echoService{refuse: 4}), request, nil),
		"by hand": byHand,
	} {
		r, err := open(t, target, 1).Run(t.Context(), Limit{Requests: 100})
		if err != nil || r.Requests != 75 || r.Errors["grpc Unavailable"] != 25 {
			t.Errorf("%s: got %d answers and %v, %v, want 75 and 25 times grpc Unavailable", name, r.Requests, r.Errors, err)
		}
	}
}

func TestGRPCCallersShareConnections(t *testing.T) {
	for callers, want := range map[int]int{1: 1, 4: 1, 8: 2, 16: 2, 17: 2, 64: 4, 65: 5} {
		if got := connections(callers); got != want {
			t.Errorf("%d callers: got %d connections, want %d", callers, got, want)
		}
	}
}

func TestGRPCWithoutAServerIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if _, err := Open(t.Context(), NewGRPC(address, nil, nil), 1); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want that the server is unavailable", err)
	}
}
