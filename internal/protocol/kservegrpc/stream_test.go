package kservegrpc

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/testing/protocmp"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
)

// openStream opens a stream that ends with the test.
func openStream(t *testing.T, s *testServer) (pb.GRPCInferenceService_ModelStreamInferClient, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	stream, err := s.client.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream, cancel
}

func sendAll(t *testing.T, stream pb.GRPCInferenceService_ModelStreamInferClient, reqs ...*pb.ModelInferRequest) {
	t.Helper()
	for _, r := range reqs {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
}

// receive returns the next answer.
func receive(t *testing.T, stream pb.GRPCInferenceService_ModelStreamInferClient) *pb.ModelStreamInferResponse {
	t.Helper()
	resp, err := stream.Recv()
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	return resp
}

func gatedRequests(n int32) []*pb.ModelInferRequest {
	var reqs []*pb.ModelInferRequest
	for i := range n {
		r := gatedRequest(i)
		r.Id = fmt.Sprint(i)
		reqs = append(reqs, r)
	}
	return reqs
}

func TestStreamAnswersAsRecorded(t *testing.T) {
	s := startServer(t, Options{})
	var good, shape *pb.ModelInferRequest
	for _, c := range recordedCases(t) {
		switch c.name {
		case "grpc_infer_raw":
			good = c.request.(*pb.ModelInferRequest)
		case "grpc_infer_wrong_shape":
			shape = c.request.(*pb.ModelInferRequest)
		}
	}
	unknown := &pb.ModelInferRequest{ModelName: "nosuch", Id: good.Id, Inputs: good.Inputs, RawInputContents: good.RawInputContents}
	final := &pb.ModelInferRequest{
		ModelName: good.ModelName, Id: good.Id, Inputs: good.Inputs, RawInputContents: good.RawInputContents,
		Parameters: map[string]*pb.InferParameter{"triton_enable_empty_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}},
	}
	stream, _ := openStream(t, s)
	sendAll(t, stream, good, unknown, shape, good, final)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile("testdata/stream.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range strings.Split(string(recorded), "--- response ")[1:] {
		want := &pb.ModelStreamInferResponse{}
		_, text, _ = strings.Cut(text, "\n")
		if err := prototext.Unmarshal([]byte(text), want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, receive(t, stream), protocmp.Transform()); diff != "" {
			t.Errorf("answer %d differs (-want +got):\n%s", i, diff)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("after the last answer: got %v, want the end of the stream", err)
	}
}

func TestStreamRunsRequestsTogetherAndAnswersInOrder(t *testing.T) {
	s := startServer(t, Options{})
	stream, _ := openStream(t, s)
	sendAll(t, stream, gatedRequests(5)...)
	for range 5 {
		<-s.gate.entered // all run at once
	}
	for n := int32(4); n >= 0; n-- {
		s.gate.pass(n, nil)
	}
	for n := range 5 {
		if got := receive(t, stream).GetInferResponse().GetId(); got != fmt.Sprint(n) {
			t.Errorf("answer %d: got the one to request %s, want %d", n, got, n)
		}
	}
}

func TestStreamRequestsAreQueuedInTheOrderOfTheStream(t *testing.T) {
	s := startServer(t, Options{})
	stream, _ := openStream(t, s)
	var want []string
	for n := range 300 {
		r := gatedRequest(int32(n))
		r.ModelName, r.Id, r.Inputs[0].Shape = "orderly", fmt.Sprint(n), []int64{1, 1}
		want = append(want, r.Id)
		sendAll(t, stream, r)
	}
	for range want {
		receive(t, stream)
	}
	s.order.mu.Lock()
	defer s.order.mu.Unlock()
	if !slices.Equal(s.order.ids, want) {
		t.Errorf("got the order %v, want that of the stream", s.order.ids)
	}
}

func TestStreamHalfCloseFinishesWhatIsInFlight(t *testing.T) {
	s := startServer(t, Options{})
	stream, _ := openStream(t, s)
	sendAll(t, stream, gatedRequests(3)...)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-s.gate.entered
	}
	for n := range int32(3) {
		s.gate.pass(n, nil)
		receive(t, stream)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("got %v, want the end of the stream", err)
	}
}

func TestStreamCancelTakesQueuedRequestsOut(t *testing.T) {
	s := startServer(t, Options{})
	stream, cancel := openStream(t, s)
	sendAll(t, stream, gatedRequests(20)...) // the model has 16 instances
	ran := make(map[int32]bool)
	for range 16 {
		ran[<-s.gate.entered] = true
	}
	waitPending(t, s, "gated", 4)
	cancel()
	waitPending(t, s, "gated", 0)
	for n := range ran {
		s.gate.pass(n, nil)
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.Canceled {
		t.Errorf("got %v, want the stream cancelled", err)
	}
	closeServer(t, s)
	if n := len(s.gate.entered); n != 0 {
		t.Errorf("%d queued requests ran after the client had cancelled, want none", n)
	}
}

func TestStreamReadsNoMoreThanItsBound(t *testing.T) {
	s := startServer(t, Options{StreamInFlight: 3})
	stream, _ := openStream(t, s)
	sendAll(t, stream, gatedRequests(12)...)
	for n := range int32(12) {
		s.gate.pass(n, nil)
		receive(t, stream)
	}
	if got := s.gate.most(); got > 3 {
		t.Errorf("got %d requests in flight at once, want at most 3", got)
	}
}

func TestStreamRunsTheRequestsOfASequenceOneByOne(t *testing.T) {
	s := startServer(t, Options{StreamInFlight: 4})
	stream, _ := openStream(t, s)
	s.gate.open()
	reqs := gatedRequests(40)
	for i, r := range reqs {
		id := &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: "one"}}
		if i >= 20 { // many short ones, so that old ones are forgotten
			id = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: int64(i)}}
		}
		r.Parameters = map[string]*pb.InferParameter{"sequence_id": id}
	}
	sent := make(chan error, 1)
	go func() {
		for _, r := range reqs {
			if err := stream.Send(r); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	next := int32(0)
	for range 40 {
		receive(t, stream)
		got := <-s.gate.entered
		if got < 20 && got != next {
			t.Errorf("request %d of the sequence ran in place %d, want the order in which they came", got, next)
		}
		if got < 20 {
			next++
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestStreamTellsWhichRequestFailed(t *testing.T) {
	s := startServer(t, Options{})
	stream, _ := openStream(t, s)
	sendAll(t, stream, gatedRequests(2)...)
	s.gate.pass(0, status.Errorf(status.Internal, "the model is out of sorts"))
	s.gate.pass(1, nil)
	want := &pb.ModelStreamInferResponse{
		ErrorMessage:  "the model is out of sorts",
		InferResponse: &pb.ModelInferResponse{Id: "0", ModelName: "gated", Parameters: map[string]*pb.InferParameter{"triton_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}},
	}
	if diff := cmp.Diff(want, receive(t, stream), protocmp.Transform()); diff != "" {
		t.Errorf("answer to the failed request (-want +got):\n%s", diff)
	}
	if got := receive(t, stream); got.ErrorMessage != "" || got.InferResponse.Id != "1" {
		t.Errorf("got %v, want the answer to the next request", got)
	}
}

func TestStreamEndsAtAnExecutionErrorForClientsThatAskForIt(t *testing.T) {
	s := startServer(t, Options{})
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "triton_grpc_error", "true"), testTimeout)
	defer cancel()
	stream, err := s.client.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sendAll(t, stream, &pb.ModelInferRequest{ModelName: "nosuch"}, gatedRequest(1), gatedRequest(2))
	if got := receive(t, stream).GetErrorMessage(); !strings.Contains(got, "nosuch") {
		t.Errorf("got %q, want an unknown model told in an answer", got)
	}
	s.gate.pass(1, status.Errorf(status.Unavailable, "Request timeout expired"))
	_, err = stream.Recv()
	if st := grpcstatus.Convert(err); st.Code() != codes.Unavailable || st.Message() != "Request timeout expired" {
		t.Errorf("got %v, want the stream to end with the execution's error", err)
	}
}

func TestStreamEndsWhenTheServerCloses(t *testing.T) {
	s := startServer(t, Options{})
	idle, _ := openStream(t, s)
	busy, _ := openStream(t, s)
	sendAll(t, busy, gatedRequest(1))
	<-s.gate.entered
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		closed <- s.Close(ctx)
	}()
	if _, err := idle.Recv(); grpcstatus.Convert(err).Message() != errClosing.Error() {
		t.Errorf("idle stream: got %v, want %v", err, errClosing)
	}
	s.gate.pass(1, nil)
	if got := receive(t, busy); got.ErrorMessage != "" {
		t.Errorf("busy stream: got %q, want the answer", got.ErrorMessage)
	}
	if _, err := busy.Recv(); grpcstatus.Convert(err).Message() != errClosing.Error() {
		t.Errorf("busy stream: got %v, want %v after the answer", err, errClosing)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: got %v, want none", err)
	}
}

func TestStreamEndsAtAMessageThatIsNoRequest(t *testing.T) {
	s := startServer(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	stream, err := s.client.ModelStreamInfer(ctx, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg([]byte{0x0a, 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new([]byte)); grpcstatus.Code(err) != codes.Internal {
		t.Errorf("got %v, want %v", err, codes.Internal)
	}
}
