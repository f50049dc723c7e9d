package kservegrpc

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"shoal/internal/infer"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

func fullResponse() *infer.Response {
	return &infer.Response{
		Model: "model", Version: 12,
		Params: []infer.Param{
			{Name: "s", Kind: infer.ParamString, String: "text"},
			{Name: "empty", Kind: infer.ParamString},
			{Name: "i", Kind: infer.ParamInt, Int: -3},
			{Name: "u", Kind: infer.ParamUint, Uint: math.MaxUint64},
			{Name: "f", Kind: infer.ParamFloat, Float: 2.5},
			{Name: "b", Kind: infer.ParamBool, Bool: true},
			{Name: "", Kind: infer.ParamBool},
		},
		Outputs: []infer.Output{
			{Name: "a", Type: tensor.FP32, Shape: tensor.Shape{1, 300, 0}},
			{Name: "b", Type: tensor.Bytes, Shape: tensor.Shape{2}, Data: []byte("\x01\x00\x00\x00x\x00\x00\x00\x00")},
			{Name: "scalar", Type: tensor.Int64, Data: make([]byte, 3000)},
		},
	}
}

func fullMessage() *pb.ModelInferResponse {
	return &pb.ModelInferResponse{
		ModelName: "model", ModelVersion: "12", Id: "id",
		Parameters: map[string]*pb.InferParameter{
			"s": stringParam("text"), "empty": stringParam(""), "i": intParam(-3), "u": uintParam(math.MaxUint64),
			"f": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 2.5}}, "b": boolParam(true), "": boolParam(false),
		},
		Outputs: []*pb.ModelInferResponse_InferOutputTensor{
			{Name: "a", Datatype: "FP32", Shape: []int64{1, 300, 0}}, {Name: "b", Datatype: "BYTES", Shape: []int64{2}}, {Name: "scalar", Datatype: "INT64"},
		},
		RawOutputContents: [][]byte{{}, []byte("\x01\x00\x00\x00x\x00\x00\x00\x00"), make([]byte, 3000)},
	}
}

// read decodes what was encoded with the standard codec.
func read[M proto.Message](t *testing.T, e *encoded, m M) M {
	t.Helper()
	data, err := newCodec().Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(data.Materialize(), m); err != nil {
		t.Fatal(err)
	}
	data.Free()
	return m
}

func TestEncodeWritesWhatTheStandardCodecReads(t *testing.T) {
	e, err := encodeInfer(reply{resp: fullResponse(), id: "id"}, math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullMessage(), read(t, e, &pb.ModelInferResponse{}), protocmp.Transform()); diff != "" {
		t.Errorf("unary (-want +got):\n%s", diff)
	}

	e, err = encodeStream(reply{resp: fullResponse(), id: "id", final: finalTrue}, math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.ModelStreamInferResponse{InferResponse: fullMessage()}
	want.InferResponse.Parameters["triton_final_response"] = boolParam(true)
	if diff := cmp.Diff(want, read(t, e, &pb.ModelStreamInferResponse{}), protocmp.Transform()); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}

	e = encodeStreamError(reply{resp: &infer.Response{}, id: ""}, "it failed")
	want = &pb.ModelStreamInferResponse{ErrorMessage: "it failed", InferResponse: &pb.ModelInferResponse{}}
	if diff := cmp.Diff(want, read(t, e, &pb.ModelStreamInferResponse{}), protocmp.Transform()); diff != "" {
		t.Errorf("stream error (-want +got):\n%s", diff)
	}
}

func TestEncodeRefusesWhatIsBeyondTheLimit(t *testing.T) {
	size := reply{resp: fullResponse()}.size()
	if _, err := encodeInfer(reply{resp: fullResponse()}, size); err != nil {
		t.Errorf("at the limit: got %v, want none", err)
	}
	if _, err := encodeInfer(reply{resp: fullResponse()}, size-1); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("beyond the limit: got %v, want %v", err, status.InvalidArgument)
	}
}

func TestEveryCodeHasItsGrpcCode(t *testing.T) {
	want := map[status.Code]codes.Code{
		status.Unknown: codes.Unknown, status.Internal: codes.Internal, status.NotFound: codes.NotFound,
		status.InvalidArgument: codes.InvalidArgument, status.Unavailable: codes.Unavailable, status.Unsupported: codes.Unimplemented,
		status.AlreadyExists: codes.AlreadyExists, status.Cancelled: codes.Canceled, status.DeadlineExceeded: codes.DeadlineExceeded,
		status.PermissionDenied: codes.PermissionDenied,
	}
	for code := range status.CodeCount {
		st := grpcstatus.Convert(grpcError(status.Errorf(code, "text")))
		text := "text"
		if code == status.DeadlineExceeded {
			text = "Deadline Exceeded" // whatever ours says
		}
		if st.Code() != want[code] || st.Code() == codes.OK || st.Message() != text {
			t.Errorf("%v: got %v %q, want %v %q", code, st.Code(), st.Message(), want[code], text)
		}
	}
}

func TestPoolLendsWhatIsAskedFor(t *testing.T) {
	var p bufferPool
	for _, n := range []int{0, 1, 1023, 1024, 1025, 16384, 602112, 1 << 24, 1<<24 + 1} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("got %d bytes, want %d", len(*b), n)
		}
		p.Put(b)
	}
	odd := make([]byte, 5000) // not one of the pool's own
	p.Put(&odd)
	if b := p.Get(8192); cap(*b) != 8192 {
		t.Errorf("got a buffer of %d, want 8192", cap(*b))
	}
}
