package kservegrpc

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"shoal/internal/infer"
	"shoal/internal/inflight"
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
	data, err := newCodec(nil).Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(data.Materialize(), m); err != nil {
		t.Fatal(err)
	}
	data.Free()
	return m
}

// all encodes answers of any size.
var all = encoder{math.MaxInt32, inflight.NewPool(nil)}

func TestEncodeWritesWhatTheStandardCodecReads(t *testing.T) {
	e, err := all.infer(reply{resp: fullResponse(), id: "id"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullMessage(), read(t, e, &pb.ModelInferResponse{}), protocmp.Transform()); diff != "" {
		t.Errorf("unary (-want +got):\n%s", diff)
	}

	e, err = all.stream(reply{resp: fullResponse(), id: "id", final: finalTrue}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.ModelStreamInferResponse{InferResponse: fullMessage()}
	want.InferResponse.Parameters["triton_final_response"] = boolParam(true)
	if diff := cmp.Diff(want, read(t, e, &pb.ModelStreamInferResponse{}), protocmp.Transform()); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}

	e = all.streamError(reply{resp: &infer.Response{}, id: ""}, "it failed")
	want = &pb.ModelStreamInferResponse{ErrorMessage: "it failed", InferResponse: &pb.ModelInferResponse{}}
	if diff := cmp.Diff(want, read(t, e, &pb.ModelStreamInferResponse{}), protocmp.Transform()); diff != "" {
		t.Errorf("stream error (-want +got):\n%s", diff)
	}
}

func TestEncodeRefusesWhatIsBeyondTheLimit(t *testing.T) {
	size := reply{resp: fullResponse()}.size()
	if _, err := (encoder{size, all.memory}).infer(reply{resp: fullResponse()}); err != nil {
		t.Errorf("at the limit: got %v, want none", err)
	}
	if _, err := (encoder{size - 1, all.memory}).infer(reply{resp: fullResponse()}); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("beyond the limit: got %v, want %v", err, status.InvalidArgument)
	}
}

func TestEveryCodeHasItsGrpcCode(t *testing.T) {
	want := map[status.Code]codes.Code{
		status.Unknown: codes.Unknown, status.Internal: codes.Internal, status.NotFound: codes.NotFound,
		status.InvalidArgument: codes.InvalidArgument, status.Unavailable: codes.Unavailable, status.Unsupported: codes.Unimplemented,
		status.AlreadyExists: codes.AlreadyExists, status.Cancelled: codes.Canceled, status.DeadlineExceeded: codes.DeadlineExceeded,
		status.PermissionDenied: codes.PermissionDenied, status.ResourceExhausted: codes.ResourceExhausted,
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

// A large last output stays where it is, and the message is released with it.
func TestALargeOutputIsLent(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int // of the outputs
		lent  bool
	}{
		"large":             {[]int{lendSize}, true},
		"large behind more": {[]int{lendSize, 3, lendSize + 1}, true},
		"small":             {[]int{lendSize - 1}, false},
		"small behind":      {[]int{lendSize, 3}, false},
		"none":              {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			budget := inflight.New(1<<30, 0)
			m := newMessage()
			m.req = infer.NewRequest()
			memory := &outputMemory{}
			m.req.Response.Own(memory)
			m.req.Response.Model = "m"
			for i, n := range c.sizes {
				out := m.req.Response.AddOutput()
				out.Name, out.Data = "OUT", bytes.Repeat([]byte{byte('a' + i)}, n)
			}
			want := read(t, must(all.infer(reply{resp: &m.req.Response})), &pb.ModelInferResponse{})
			e, err := encoder{math.MaxInt32, inflight.NewPool(budget)}.answer(m)
			if err != nil {
				t.Fatal(err)
			}
			if e.Lends() != c.lent || memory.released != 0 || budget.Used() < int64(e.len()) {
				t.Errorf("got lent %v, released %d times, %d bytes claimed, want %v, none yet and %d at least", e.Lends(), memory.released, budget.Used(), c.lent, e.len())
			}
			if diff := cmp.Diff(want, read(t, e, &pb.ModelInferResponse{}), protocmp.Transform()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if released := memory.released == 1; released != c.lent || budget.Used() != 0 {
				t.Errorf("when it is freed: got released %v, %d bytes claimed, want %v and none", released, budget.Used(), c.lent)
			}
		})
	}
}

func TestALargeOutputWithoutRoomIsRefusedAndNotReleased(t *testing.T) {
	m := newMessage()
	m.req = infer.NewRequest()
	defer m.release()
	m.req.Response.AddOutput().Data = make([]byte, 2*lendSize)
	small := encoder{math.MaxInt32, inflight.NewPool(inflight.New(lendSize, 0))}
	if _, err := small.answer(m); err == nil {
		t.Error("got an answer beyond the budget, want an error")
	}
	if _, err := (encoder{lendSize, all.memory}).answer(m); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("beyond the limit: got %v, want %v", err, status.InvalidArgument)
	}
	if len(m.req.Response.Outputs) != 1 {
		t.Error("the message was released, want that left to the caller")
	}
}

type outputMemory struct{ released int }

func (o *outputMemory) Release() { o.released++ }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
