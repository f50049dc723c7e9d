package kservegrpc

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// field returns a field of bytes with its tag and length.
func field(num protowire.Number, v ...[]byte) []byte {
	b := protowire.AppendTag(nil, num, protowire.BytesType)
	return protowire.AppendBytes(b, bytes.Join(v, nil))
}

// number returns a field with a varint.
func number(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// codecSeeds returns requests as real clients send them, and the corners of the
// wire format that none of them does.
func codecSeeds(tb testing.TB) [][]byte {
	tb.Helper()
	var seeds [][]byte
	for _, c := range recordedCases(tb) {
		if req, ok := c.request.(*pb.ModelInferRequest); ok {
			seeds = append(seeds, mustMarshal(tb, req))
		}
	}
	return append(seeds, [][]byte{
		mustMarshal(tb, everythingRequest()),
		mustMarshal(tb, everyTypeRequest()),
		manyParams(20),
		// A string that is no UTF-8, in each place.
		field(1, []byte("\xff")), field(4, field(1, []byte("\xff"))), field(4, field(2, field(3, []byte("\xff")))),
		field(5, field(1, []byte("\xff"))), field(5, field(2, []byte("a\xc0"))), field(6, field(1, []byte("\xff"))),
		// Scalars and parameters that come twice: the last one holds.
		bytes.Join([][]byte{field(1, []byte("a")), field(1, []byte("b")), field(3, []byte("x")), field(3)}, nil),
		bytes.Join([][]byte{field(4, field(1, []byte("k")), field(2, number(1, 1))), field(4, field(1, []byte("k")), field(2, number(2, 7)))}, nil),
		field(4, field(2, number(1, 1)), field(1, []byte("late key")), field(2, field(3, []byte("s")))),
		field(4), field(4, field(2)), field(4, field(2, number(5, math.MaxUint64))),
		// Shapes packed, not packed and both; contents in several parts.
		field(5, number(3, 1), field(3, []byte{2, 3}), number(3, 1<<63)),
		field(5, field(5, number(2, 5), field(2, []byte{6, 7})), field(5, number(2, 8), field(6, []byte{0, 0, 0x80, 0x3f}))),
		field(5, field(5, field(6, []byte{1, 2, 3}))),
		field(5, field(5)),
		// Wrong wire types, unknown fields, groups.
		number(1, 5), field(5, number(1, 1)), field(9, []byte("unknown")), number(100, 1),
		{0x0b, 0x10, 0x01, 0x0c},
		{0x0b, 0x0b, 0x0c, 0x0c},
		{0x0b, 0x14},
		{0x0c},
		{0x3b, 0x0a, 0x01, 0x61, 0x3c},
		field(5, []byte{0x0b, 0x10, 0x01, 0x0c}), field(5, []byte{0x0c}),
		// Numbers that are too long, fields that are too large or zero.
		bytes.Repeat([]byte{0xff}, 11),
		{0x00},
		{0x02, 0x00},
		{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f},
		protowire.AppendVarint(nil, (1<<29)<<3|2), protowire.AppendVarint(nil, math.MaxUint64),
		{0x0d, 1, 2, 3},
		{0x09, 1, 2, 3, 4, 5, 6, 7},
		{0x0e},
		{0x0f},
		{0x8a, 0x80, 0x00, 0x01, 0x61}, // a tag longer than it need be
	}...)
}

func mustMarshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// everythingRequest has every field.
func everythingRequest() *pb.ModelInferRequest {
	params := func() map[string]*pb.InferParameter {
		return map[string]*pb.InferParameter{
			"b": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}},
			"i": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: -5}},
			"s": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "süß"}},
			"d": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: math.NaN()}},
			"u": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: math.MaxUint64}},
			"":  {},
		}
	}
	return &pb.ModelInferRequest{
		ModelName: "model", ModelVersion: "3", Id: "id", Parameters: params(),
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{
			Name: "in", Datatype: "FP32", Shape: []int64{1, -1, 1 << 40}, Parameters: params(),
			Contents: &pb.InferTensorContents{
				BoolContents: []bool{true, false}, IntContents: []int32{-1, 300, math.MinInt32},
				Int64Contents: []int64{math.MinInt64}, UintContents: []uint32{math.MaxUint32},
				Uint64Contents: []uint64{math.MaxUint64}, Fp32Contents: []float32{1.5, float32(math.Inf(1))},
				Fp64Contents: []float64{-2.25}, BytesContents: [][]byte{[]byte("a"), {}, {0xff}},
			},
		}, {Name: "ints", Datatype: "INT8", Shape: []int64{3}, Contents: &pb.InferTensorContents{IntContents: []int32{-1, 2, 300}}}},
		Outputs:          []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "out", Parameters: params()}, {}},
		RawInputContents: [][]byte{bytes.Repeat([]byte{7}, 300), {}, []byte("x")},
	}
}

// everyTypeRequest has an input for each field of the typed contents.
func everyTypeRequest() *pb.ModelInferRequest {
	req := &pb.ModelInferRequest{}
	for _, c := range []*pb.InferTensorContents{
		{BoolContents: []bool{true, false}},
		{IntContents: []int32{-1, 300, math.MinInt32}},
		{Int64Contents: []int64{math.MinInt64, 1}},
		{UintContents: []uint32{math.MaxUint32, 7}},
		{Uint64Contents: []uint64{math.MaxUint64}},
		{Fp32Contents: []float32{1.5}},
		{Fp64Contents: []float64{-2.25}},
		{BytesContents: [][]byte{[]byte("a"), {}}},
	} {
		req.Inputs = append(req.Inputs, &pb.ModelInferRequest_InferInputTensor{Contents: c})
	}
	return req
}

// manyParams returns n parameters of which each name comes twice.
func manyParams(n int) []byte {
	var b []byte
	for i := range 2 * n {
		b = append(b, field(4, field(1, []byte{'a' + byte(i%n)}), field(2, number(2, uint64(i))))...)
	}
	return b
}
