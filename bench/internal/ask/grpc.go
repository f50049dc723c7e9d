package ask

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"shoal/bench/internal/peer"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// GRPC asks over gRPC with grpc-go. It is safe for concurrent use.
type GRPC struct {
	conn   *grpc.ClientConn
	client inferencepb.GRPCInferenceServiceClient
}

// NewGRPC returns a client of the server at address, which connects when it is
// first asked. Nil credentials are plain text.
func NewGRPC(address string, tls credentials.TransportCredentials) (*GRPC, error) {
	if tls == nil {
		tls = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(tls), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	return &GRPC{conn, inferencepb.NewGRPCInferenceServiceClient(conn)}, nil
}

// Close closes the client's connection.
func (c *GRPC) Close() { c.conn.Close() }

// Ask sends the question and checks the answer.
func (c *GRPC) Ask(ctx context.Context, q Question) error {
	response, err := c.client.ModelInfer(ctx, q.message(q.raw(), 1, int64(q.Model.Width)))
	if err != nil {
		return err
	}
	return q.checkMessage(response)
}

func (q Question) checkMessage(m *inferencepb.ModelInferResponse) error {
	if got := len(m.GetRawOutputContents()); got != 1 {
		return fmt.Errorf("%w: model %s: got %d outputs, want 1", ErrWrong, q.Model.Name, got)
	}
	return q.checkRaw(m.GetId(), m.GetRawOutputContents()[0])
}

// message returns the request with that input.
func (q Question) message(raw []byte, shape ...int64) *inferencepb.ModelInferRequest {
	return &inferencepb.ModelInferRequest{
		ModelName: q.Model.Name, Id: q.ID(),
		Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: peer.Input, Datatype: "FP32", Shape: shape}},
		RawInputContents: [][]byte{raw},
	}
}

// A Stream is one ModelStreamInfer call, for one question at a time.
type Stream struct {
	stream grpc.BidiStreamingClient[inferencepb.ModelInferRequest, inferencepb.ModelStreamInferResponse]
}

// Stream opens a stream that ends with the context.
func (c *GRPC) Stream(ctx context.Context) (*Stream, error) {
	s, err := c.client.ModelStreamInfer(ctx)
	if err != nil {
		return nil, err
	}
	return &Stream{s}, nil
}

// Countdown has the model count down from n, and checks that every number comes
// once, in order, and then the final response. A [StreamError] is the server's
// error of this one request; after any other the stream is over.
func (s *Stream) Countdown(q Question, n int) error {
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(n)))
	m := q.message(raw, 1)
	m.Parameters = map[string]*inferencepb.InferParameter{
		"triton_enable_empty_final_response": {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}},
	}
	if err := s.stream.Send(m); err != nil {
		_, err = s.stream.Recv() // says why
		return err
	}
	for left := n - 1; ; left-- {
		got, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if text := got.GetErrorMessage(); text != "" {
			return &StreamError{text}
		}
		r := got.GetInferResponse()
		if r.GetId() != q.ID() {
			return fmt.Errorf("%w: model %s: got a response to request %q, want %q", ErrWrong, q.Model.Name, r.GetId(), q.ID())
		}
		if r.GetParameters()["triton_final_response"].GetBoolParam() {
			if left != -1 {
				return fmt.Errorf("%w: model %s: final response with %d to come of %d", ErrWrong, q.Model.Name, left+1, n)
			}
			return nil
		}
		out := r.GetRawOutputContents()
		if len(out) != 1 || len(out[0]) != 4 || math.Float32frombits(binary.LittleEndian.Uint32(out[0])) != float32(left) {
			return fmt.Errorf("%w: model %s: got %v, want %d", ErrWrong, q.Model.Name, out, left)
		}
	}
}

// CloseSend says that no more questions come, and returns when the server has
// ended the stream.
func (s *Stream) CloseSend() error {
	if err := s.stream.CloseSend(); err != nil {
		return err
	}
	_, err := s.stream.Recv()
	return err
}

// A StreamError is the error of one request on a stream.
type StreamError struct{ Text string }

func (e *StreamError) Error() string { return e.Text }
