package kservegrpc

import (
	"bytes"
	"context"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"shoal/internal/infer"
	"shoal/internal/protocol/grpcserver"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// rawCodec sends and receives bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func intParam(n int64) *pb.InferParameter {
	return &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: n}}
}

func uintParam(n uint64) *pb.InferParameter {
	return &pb.InferParameter{ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: n}}
}

func stringParam(s string) *pb.InferParameter {
	return &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: s}}
}

func boolParam(b bool) *pb.InferParameter {
	return &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: b}}
}

func TestModelInferRefusesBadRequests(t *testing.T) {
	s := startServer(t, Options{})
	with := func(change func(*pb.ModelInferRequest)) *pb.ModelInferRequest {
		r := floatsRequest(2)
		change(r)
		return r
	}
	param := func(name string, v *pb.InferParameter) *pb.ModelInferRequest {
		return with(func(r *pb.ModelInferRequest) { r.Parameters = map[string]*pb.InferParameter{name: v} })
	}
	output := func(name string, v *pb.InferParameter) *pb.ModelInferRequest {
		return with(func(r *pb.ModelInferRequest) {
			r.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: map[string]*pb.InferParameter{name: v}}}
		})
	}
	contents := func(datatype string, c *pb.InferTensorContents) *pb.ModelInferRequest {
		return with(func(r *pb.ModelInferRequest) {
			r.RawInputContents = nil
			r.Inputs[0].Datatype, r.Inputs[0].Contents = datatype, c
		})
	}
	const disabled = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
	for _, c := range []struct {
		name string
		req  *pb.ModelInferRequest
		code codes.Code
		text string
	}{
		{"version is a word", with(func(r *pb.ModelInferRequest) { r.ModelVersion = "x1" }), codes.InvalidArgument, "failed to get model version from specified version string 'x1' (details: stol), version should be an integral value > 0"},
		{"version overflows", with(func(r *pb.ModelInferRequest) { r.ModelVersion = "99999999999999999999" }), codes.InvalidArgument, "failed to get model version from specified version string '99999999999999999999' (details: stol), version should be an integral value > 0"},
		{"version is negative", with(func(r *pb.ModelInferRequest) { r.ModelVersion = "-1" }), codes.InvalidArgument, "invalid model version specified '-1' , version should be an integral value > 0"},
		{"model is decoupled", with(func(r *pb.ModelInferRequest) { r.ModelName = "decoupled" }), codes.Unimplemented, "ModelInfer RPC doesn't support models with decoupled transaction policy"},
		{"sequence_id is a bool", param("sequence_id", boolParam(true)), codes.InvalidArgument, "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
		{"sequence_start is a number", param("sequence_start", intParam(1)), codes.InvalidArgument, "invalid value type for 'sequence_start' parameter, expected bool_param."},
		{"sequence_end is a number", param("sequence_end", intParam(1)), codes.InvalidArgument, "invalid value type for 'sequence_end' parameter, expected bool_param."},
		{"priority is negative", param("priority", intParam(-1)), codes.InvalidArgument, "invalid value for 'priority', expected value >= 0."},
		{"priority is a text", param("priority", stringParam("1")), codes.InvalidArgument, "invalid value type for 'priority' parameter, expected int64_param or uint64_param."},
		{"timeout is unsigned", param("timeout", uintParam(1)), codes.InvalidArgument, "invalid value type for 'timeout' parameter, expected int64_param."},
		{"timeout is negative", param("timeout", intParam(-1)), codes.InvalidArgument, "invalid value for 'timeout', expected microseconds >= 0."},
		{"parameter is unsigned", param("mine", uintParam(1)), codes.InvalidArgument, "invalid value type for 'mine' parameter, expected int64_param, bool_param, or string_param."},
		{"parameter has no value", param("mine", &pb.InferParameter{}), codes.InvalidArgument, "invalid value type for 'mine' parameter, expected int64_param, bool_param, or string_param."},
		{"parameter is reserved", param("triton_mine", intParam(1)), codes.InvalidArgument, "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with 'triton_' are allowed: triton_enable_empty_final_response"},
		{"final response is a number", param("triton_enable_empty_final_response", intParam(1)), codes.InvalidArgument, "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."},
		{"classification is negative", output("classification", intParam(-1)), codes.InvalidArgument, "invalid value for 'classification' parameter, expected >= 0"},
		{"classification of zero classes", output("classification", intParam(0)), codes.InvalidArgument, "invalid value for 'classification' parameter, expected >= 0"},
		{"an offset without a region", output("shared_memory_offset", stringParam("x")), codes.InvalidArgument, "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'OUTPUT0'"},
		{"a duplicate without data", with(func(r *pb.ModelInferRequest) { r.Inputs = append(r.Inputs, r.Inputs[0]) }), codes.InvalidArgument, "[request id: <id_unknown>] input 'INPUT0' already exists in request"},
		{"classification is a text", output("classification", stringParam("3")), codes.InvalidArgument, "invalid value type for 'classification' parameter, expected int64_param."},
		{"output in shared memory", output("shared_memory_region", stringParam("r")), codes.Unimplemented, disabled},
		{"input in shared memory", with(func(r *pb.ModelInferRequest) {
			r.Inputs[0].Parameters = map[string]*pb.InferParameter{"shared_memory_region": stringParam("r")}
		}), codes.Unimplemented, disabled},
		{"contents of two types", contents("FP32", &pb.InferTensorContents{Fp32Contents: []float32{1}, Fp64Contents: []float64{1}}), codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'INPUT0' for model 'floats', binary data was already supplied."},
		{"contents of another type", contents("FP16", &pb.InferTensorContents{Fp32Contents: []float32{1}}), codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'INPUT0' for model 'floats' of type 'FP32', expected datatype 'FP16'"},
		{"contents for an unknown type", contents("FLOAT", &pb.InferTensorContents{IntContents: []int32{1}}), codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'INPUT0' for model 'floats' of type 'INT32', expected datatype '<invalid>'"},
		{"contents are empty", contents("FP32", &pb.InferTensorContents{}), codes.InvalidArgument, "[request id: <id_unknown>] input byte size mismatch for input 'INPUT0' for model 'floats'. Expected 8, got 0"},
		{"shape overflows", with(func(r *pb.ModelInferRequest) { r.Inputs[0].Shape = []int64{1, math.MaxInt64} }), codes.InvalidArgument, ""},
		{"shape has many dimensions", with(func(r *pb.ModelInferRequest) { r.Inputs[0].Shape = make([]int64, 1000) }), codes.InvalidArgument, ""},
		{"10,000 inputs", with(func(r *pb.ModelInferRequest) {
			for range 10000 {
				r.Inputs = append(r.Inputs, r.Inputs[0])
			}
		}), codes.InvalidArgument, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.client.ModelInfer(t.Context(), c.req)
			st := grpcstatus.Convert(err)
			if st.Code() != c.code || (c.text != "" && st.Message() != c.text) {
				t.Errorf("got %v %q, want %v %q", st.Code(), st.Message(), c.code, c.text)
			}
		})
	}
	if _, err := s.client.ModelInfer(t.Context(), floatsRequest(2)); err != nil {
		t.Errorf("a good request after the bad ones: got %v, want an answer", err)
	}
}

func TestModelInferAcceptsWhatTheOriginalDoes(t *testing.T) {
	s := startServer(t, Options{})
	for name, change := range map[string]func(*pb.ModelInferRequest){
		"text after the version's digits": func(r *pb.ModelInferRequest) { r.ModelVersion = " +1.5" },
		"surplus raw contents":            func(r *pb.ModelInferRequest) { r.RawInputContents = append(r.RawInputContents, []byte("more")) },
		"a huge timeout": func(r *pb.ModelInferRequest) {
			r.Parameters = map[string]*pb.InferParameter{"timeout": intParam(math.MaxInt64)}
		},
	} {
		r := floatsRequest(2)
		change(r)
		resp, err := s.client.ModelInfer(t.Context(), r)
		if err != nil || !bytes.Equal(resp.GetRawOutputContents()[0], r.RawInputContents[0]) {
			t.Errorf("%s: got %v, %v, want the input back", name, resp, err)
		}
	}
}

func TestModelInferEchoesLargeTensorsAndParameters(t *testing.T) {
	s := startServer(t, Options{})
	for _, n := range []int{0, 1, 250, 5000, 150528, 3 << 20} {
		r := floatsRequest(n)
		r.Id = "süß"
		resp, err := s.client.ModelInfer(t.Context(), r)
		if err != nil {
			t.Fatalf("%d elements: %v", n, err)
		}
		if !bytes.Equal(resp.RawOutputContents[0], r.RawInputContents[0]) {
			t.Errorf("%d elements: got other %d bytes, want those sent", n, len(resp.RawOutputContents[0]))
		}
		want := &pb.ModelInferResponse{
			ModelName: "floats", ModelVersion: "1", Id: "süß", Parameters: map[string]*pb.InferParameter{
				"param0": stringParam("an example string parameter"), "param1": intParam(42), "param2": boolParam(false),
				"param3": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 123.123}},
			},
			Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: "FP32", Shape: []int64{1, int64(n)}}},
		}
		resp.RawOutputContents = nil
		if !proto.Equal(resp, want) {
			t.Errorf("%d elements: got %v, want %v", n, resp, want)
		}
	}
}

func TestModelInferTakesTypedStrings(t *testing.T) {
	s := startServer(t, Options{})
	resp, err := s.client.ModelInfer(t.Context(), &pb.ModelInferRequest{
		ModelName: "strings",
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{
			Name: "INPUT0", Datatype: "BYTES", Shape: []int64{1, 3},
			Contents: &pb.InferTensorContents{BytesContents: [][]byte{[]byte("one"), {}, {0, 0xff}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := resp.RawOutputContents[0], []byte("\x03\x00\x00\x00one\x00\x00\x00\x00\x02\x00\x00\x00\x00\xff"); !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestModelInferCancelTakesAQueuedRequestOut(t *testing.T) {
	s := startServer(t, Options{})
	for n := range int32(16) {
		go func() { _, _ = s.client.ModelInfer(context.Background(), gatedRequest(n)) }()
	}
	for range 16 {
		<-s.gate.entered
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.client.ModelInfer(ctx, gatedRequest(16))
		ended <- err
	}()
	waitPending(t, s, "gated", 1)
	cancel()
	waitPending(t, s, "gated", 0)
	if err := <-ended; grpcstatus.Code(err) != codes.Canceled {
		t.Errorf("got %v, want %v", err, codes.Canceled)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.client.ModelInfer(ctx, gatedRequest(17)); grpcstatus.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want %v", err, codes.DeadlineExceeded)
	}
	waitPending(t, s, "gated", 0)
	closeServer(t, s)
	if n := len(s.gate.entered); n != 0 {
		t.Errorf("%d requests ran after their clients had given up, want none", n)
	}
}

func TestModelInferSurvivesAPanicOfAModel(t *testing.T) {
	s := startServer(t, Options{})
	_, err := s.client.ModelInfer(t.Context(), gatedRequest(-1))
	if st := grpcstatus.Convert(err); st.Code() != codes.Internal || strings.Contains(st.Message(), "the model is broken") {
		t.Errorf("got %v, want %v without the panic's text", err, codes.Internal)
	}
	if _, err := s.client.ModelInfer(t.Context(), floatsRequest(1)); err != nil {
		t.Errorf("the next request: got %v, want an answer", err)
	}
}

func TestModelInferRefusesWhatIsNoRequest(t *testing.T) {
	s := startServer(t, Options{})
	for _, data := range [][]byte{{0xff}, {0x0a, 0xff}, []byte("\x0a\x01\xff"), bytes.Repeat([]byte{0x2a, 0x00}, maxEntries+1)} {
		err := s.conn.Invoke(t.Context(), pb.GRPCInferenceService_ModelInfer_FullMethodName, data, new([]byte), grpc.ForceCodecV2(rawCodec{}))
		if grpcstatus.Code(err) != codes.Internal {
			t.Errorf("%.10x: got %v, want %v", data, err, codes.Internal)
		}
	}
}

func TestModelInferRefusesAResponseBeyondTheLimit(t *testing.T) {
	s := startServer(t, Options{Server: grpcserver.Options{MaxReceive: 4096, MaxSend: 4096}})
	_, err := s.client.ModelInfer(t.Context(), floatsRequest(1000)) // the answer has parameters, so it is larger
	if st := grpcstatus.Convert(err); st.Code() != codes.InvalidArgument || !regexp.MustCompile(`^Response has byte size 4[0-9]{3} which exceeds gRPC's byte size limit 4096\.$`).MatchString(st.Message()) {
		t.Errorf("got %v, want the limit named", err)
	}
	_, err = s.client.ModelInfer(t.Context(), floatsRequest(1100))
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request beyond the limit: got %v, want %v", err, codes.ResourceExhausted)
	}
}

func TestModelInferForwardsChosenHeaders(t *testing.T) {
	s := startServer(t, Options{ForwardHeaders: regexp.MustCompile("^x-|^timeout$")})
	got := make(chan []infer.Param, 1)
	s.gate.look = func(r *infer.Request) {
		params := make([]infer.Param, 0, len(r.Params))
		for _, p := range r.Params {
			p.Name, p.String = strings.Clone(p.Name), strings.Clone(p.String)
			params = append(params, p)
		}
		got <- params
	}
	s.gate.open()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", "me", "other", "no")
	if _, err := s.client.ModelInfer(ctx, gatedRequest(1)); err != nil {
		t.Fatal(err)
	}
	if ps := <-got; len(ps) != 1 || ps[0] != (infer.Param{Name: "x-user", Kind: infer.ParamString, String: "me"}) {
		t.Errorf("got parameters %v, want x-user alone", ps)
	}
	_, err := s.client.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "timeout", "1"), gatedRequest(1))
	if want := "Header 'timeout' is reserved for Triton usage and cannot be forwarded."; grpcstatus.Convert(err).Message() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]int64{"": infer.LatestVersion, "0": 0, "1": 1, " 12abc": 12, "+3": 3, "9223372036854775807": math.MaxInt64} {
		if got, err := parseVersion(text); got != want || err != nil {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{" ", "a", "-", "+", "--1", "-1", "9223372036854775808", "\x001"} {
		if got, err := parseVersion(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}
