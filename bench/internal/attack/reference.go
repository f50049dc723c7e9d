package attack

import (
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"

	"shoal/bench/internal/peer"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// ServeReference serves the calls that the floods make with grpc-go's own
// server, prints its address, and goes on until the process is ended. The tests
// run it in a process of its own, as what a flood costs is held against it.
func ServeReference() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	inferencepb.RegisterGRPCInferenceServiceServer(s, reference{})
	fmt.Fprintln(os.Stdout, l.Addr())
	return s.Serve(l)
}

// reference gives inputs back.
type reference struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
}

func (reference) ModelInfer(_ context.Context, r *inferencepb.ModelInferRequest) (*inferencepb.ModelInferResponse, error) {
	return &inferencepb.ModelInferResponse{
		ModelName:         r.GetModelName(),
		Outputs:           []*inferencepb.ModelInferResponse_InferOutputTensor{{Name: peer.Output, Datatype: "FP32"}},
		RawOutputContents: r.GetRawInputContents(),
	}, nil
}

// ModelStreamInfer waits for a message, as Shoal does.
func (reference) ModelStreamInfer(s grpc.BidiStreamingServer[inferencepb.ModelInferRequest, inferencepb.ModelStreamInferResponse]) error {
	for {
		if _, err := s.Recv(); err != nil {
			return nil
		}
	}
}
