package kservegrpc

import (
	"context"
	"encoding/binary"
	"io"
	"strconv"
	"testing"
	"time"

	"shoal/internal/infer"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// squareRequest asks for n responses and the end.
func squareRequest(id string, n int32) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{
		ModelName: "square", Id: id,
		Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "IN", Datatype: "INT32", Shape: []int64{1}}},
		RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(n))},
		Parameters:       map[string]*pb.InferParameter{"triton_enable_empty_final_response": boolParam(true)},
	}
}

func TestDecoupledRequestsSideBySideAreAllAnswered(t *testing.T) {
	s := startServer(t, Options{StreamInFlight: 8})
	stream, _ := openStream(t, s)
	const requests = 100
	go func() {
		for n := range int32(requests) {
			if stream.Send(squareRequest(strconv.Itoa(int(n)), n)) != nil {
				return // the receiver tells
			}
		}
		_ = stream.CloseSend()
	}()
	responses, ends := make(map[string]int), make(map[string]int)
	for {
		resp, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil || resp.ErrorMessage != "" {
			t.Fatalf("got %v, %q", err, resp.GetErrorMessage())
		}
		r := resp.InferResponse
		if r.Parameters["triton_final_response"].GetBoolParam() {
			ends[r.Id]++
			continue
		}
		if ends[r.Id] > 0 {
			t.Errorf("request %s: got a response after the end", r.Id)
		}
		responses[r.Id]++
	}
	for n := range requests {
		if id := strconv.Itoa(n); responses[id] != n || ends[id] != 1 {
			t.Errorf("request %s: got %d responses and %d ends, want %d and 1", id, responses[id], ends[id], n)
		}
	}
}

func TestAnOrdinaryAnswerDoesNotWaitForADecoupledRequest(t *testing.T) {
	s := startServer(t, Options{})
	stream, cancel := openStream(t, s)
	endless := squareRequest("endless", 1<<30)
	sendAll(t, stream, endless, gatedRequest(1))
	<-s.gate.entered
	for range 3 {
		if got := receive(t, stream); got.InferResponse.Id != "endless" {
			t.Fatalf("got %v, want a response of the decoupled model", got)
		}
	}
	s.gate.open()
	for receive(t, stream).InferResponse.ModelName != "gated" {
	}
	cancel()
	deadline, done := context.WithTimeout(t.Context(), testTimeout)
	defer done()
	for canceled(t, s) != 1 {
		select {
		case <-deadline.Done():
			t.Fatal("the decoupled request goes on without its client")
		case <-time.After(time.Millisecond):
		}
	}
}

// canceled returns how many requests to square were cancelled.
func canceled(t *testing.T, s *testServer) uint64 {
	t.Helper()
	list, err := s.engine.Statistics("square", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	return list[0].Failures["CANCELED"]
}

func TestABackendWithOneAnswerEndsItsDecoupledRequest(t *testing.T) {
	s := startServer(t, Options{})
	stream, _ := openStream(t, s)
	r := gatedRequest(7)
	r.ModelName = "decoupled"
	sendAll(t, stream, r)
	got := receive(t, stream)
	if got.ErrorMessage != "" || !got.InferResponse.Parameters["triton_final_response"].GetBoolParam() {
		t.Errorf("got %v, want one final response", got)
	}
}
