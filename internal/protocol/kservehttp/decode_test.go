package kservehttp

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/tensor"
)

func TestDecodeFillsTheRequest(t *testing.T) {
	r := infer.NewRequest()
	defer r.Release()
	allBinary, err := decodeBody(r, []byte(`{"unknown":{"deep":[1,{"a":"\u00e9"}]},"id":"a\u0062c","parameters":{"sequence_id":7,"sequence_start":true,"sequence_end":false,
		"priority":3,"timeout":500000,"binary_data_output":true,"x":"y","n":-3,"b":true,"f":1.5,"u":18446744073709551615},
		"inputs":[{"datatype":"INT16","data":[[1,-2],[3,70000]],"parameters":{"unknown":[]},"shape":[2,2],"name":"A"},
			{"name":"B","shape":[3],"datatype":"BYTES","data":["x","","\u00e9\n"]},
			{"name":"C","shape":[2],"datatype":"BOOL","data":[true,false]},
			{"name":"D","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}}],
		"outputs":[{"name":"O","parameters":{"classification":3,"binary_data":true}},{"name":"P"}]}`), []byte{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if !allBinary || r.ID != "abc" || r.Priority != 3 || r.Timeout != 500*time.Millisecond || r.Sequence != (infer.Sequence{ID: 7, Start: true}) {
		t.Errorf("got %+v, binary %v", r, allBinary)
	}
	wantParams := []infer.Param{
		{Name: "x", Kind: infer.ParamString, String: "y"},
		{Name: "n", Kind: infer.ParamInt, Int: -3},
		{Name: "b", Kind: infer.ParamBool, Bool: true},
		{Name: "f", Kind: infer.ParamFloat, Float: 1.5},
		{Name: "u", Kind: infer.ParamUint, Uint: math.MaxUint64},
	}
	for i, want := range wantParams {
		if r.Params[i] != want {
			t.Errorf("parameter %d: got %+v, want %+v", i, r.Params[i], want)
		}
	}
	for i, want := range []struct {
		name  string
		t     tensor.Type
		shape tensor.Shape
		data  string
	}{
		{"A", tensor.Int16, tensor.Shape{2, 2}, "\x01\x00\xfe\xff\x03\x00\x70\x11"},
		{"B", tensor.Bytes, tensor.Shape{3}, "\x01\x00\x00\x00x\x00\x00\x00\x00\x03\x00\x00\x00\u00e9\n"},
		{"C", tensor.Bool, tensor.Shape{2}, "\x01\x00"},
		{"D", tensor.FP16, tensor.Shape{1}, "\x01\x02"},
	} {
		in := &r.Inputs[i]
		if in.Name != want.name || in.Type != want.t || !in.Shape.Equal(want.shape) || string(in.Data.First) != want.data {
			t.Errorf("input %d: got %s %s %s %q, want %+v", i, in.Name, in.Type, in.Shape, in.Data.First, want)
		}
	}
	if len(r.Outputs) != 2 || r.Outputs[0] != (infer.Wanted{Name: "O", Classes: 3, Binary: true}) || r.Outputs[1] != (infer.Wanted{Name: "P"}) {
		t.Errorf("outputs: got %+v", r.Outputs)
	}
}

func TestDecodeStoresEveryType(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		datatype, data string
		want           []byte
	}{
		{"BOOL", "[true]", []byte{1}},
		{"UINT8", "[255]", []byte{255}},
		{"UINT8", "[256]", []byte{0}}, // cut short, as the original does
		{"UINT16", "[65535]", []byte{255, 255}},
		{"UINT32", "[4294967295]", []byte{255, 255, 255, 255}},
		{"UINT64", "[18446744073709551615]", le.AppendUint64(nil, math.MaxUint64)},
		{"INT8", "[-128]", []byte{128}},
		{"INT16", "[-1]", []byte{255, 255}},
		{"INT32", "[-2147483648]", []byte{0, 0, 0, 128}},
		{"INT64", "[-9223372036854775808]", le.AppendUint64(nil, 1<<63)},
		{"FP32", "[0.1]", le.AppendUint32(nil, math.Float32bits(0.1))},
		{"FP32", "[1e39]", le.AppendUint32(nil, math.Float32bits(float32(math.Inf(1))))},
		{"FP32", "[-Infinity]", le.AppendUint32(nil, math.Float32bits(float32(math.Inf(-1))))},
		{"FP64", "[0.1]", le.AppendUint64(nil, math.Float64bits(0.1))},
		{"FP64", "[-0]", le.AppendUint64(nil, 1<<63)},
		{"FP64", "[[[7]]]", le.AppendUint64(nil, math.Float64bits(7))},
		{"BYTES", `["ab"]`, []byte("\x02\x00\x00\x00ab")},
	} {
		r := infer.NewRequest()
		_, err := decodeBody(r, []byte(`{"inputs":[{"name":"I","shape":[1],"datatype":"`+c.datatype+`","data":`+c.data+`}]}`), nil)
		if err != nil || !bytes.Equal(r.Inputs[0].Data.First, c.want) {
			t.Errorf("%s %s: got %v (%v), want %v", c.datatype, c.data, r.Inputs, err, c.want)
		}
		r.Release()
	}
}

// FuzzDecode gives the decoder any JSON and any bytes after it. It must not
// panic, and what it makes must keep to the sizes that it was given.
// fuzzed is what generate requests are read for.
var fuzzed = &model.Signature{Name: "m", Inputs: []model.Tensor{
	{Name: "I", Type: tensor.Int32, Full: tensor.Shape{-1, 2, -1}},
	{Name: "F", Type: tensor.FP64, Full: tensor.Shape{2}},
	{Name: "S", Type: tensor.Bytes, Full: tensor.Shape{-1}},
}}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":"x","I":[1,2,3,4],"F":[1.5,NaN],"parameters":{"S":"text","p":1},"q":true}`), []byte(nil))
	f.Add(small, []byte(nil))
	f.Add([]byte(`{"inputs":[{"name":"I","shape":[2],"datatype":"INT32","parameters":{"binary_data_size":8}}]}`), []byte("12345678"))
	f.Add([]byte(`{"inputs":[{"name":"I","shape":[9223372036854775807,2],"datatype":"INT32","data":[1]}]}`), []byte("x"))
	f.Add([]byte(`{"inputs":[{"data":["\u00e9",["x"]],"name":"I","shape":[2],"datatype":"BYTES"}],"outputs":[{"name":"O"}]}`), []byte(nil))
	f.Fuzz(func(t *testing.T, text, rest []byte) {
		fuzzGenerate(t, text)
		r := infer.NewRequest()
		defer r.Release()
		if _, err := decodeBody(r, text, rest); err != nil {
			return
		}
		fromRest := 0
		for i := range r.Inputs {
			in := &r.Inputs[i]
			n, ok := in.Shape.Elements()
			size := in.Data.Size()
			inRest := cap(rest) > 0 && size > 0 && within(in.Data.First, rest)
			switch {
			case inRest:
				fromRest += size
			case size > 4*(len(text)+1):
				t.Fatalf("%q: input of %d bytes from %d of text", text, size, len(text))
			case in.Type.Size() > 0 && size > 0 && (!ok || int64(size) != n*int64(in.Type.Size())):
				t.Fatalf("%q: shape %s of %s has %d bytes", text, in.Shape, in.Type, size)
			}
		}
		if fromRest != len(rest) {
			t.Fatalf("%q: inputs took %d of %d bytes", text, fromRest, len(rest))
		}
	})
}

// fuzzGenerate reads a text as a generate request. Its inputs have the bytes that
// their shapes call for, and no more of them than the text.
func fuzzGenerate(t *testing.T, text []byte) {
	r := infer.NewRequest()
	defer r.Release()
	d := newDecoder(r, "m", 64<<20, nil)
	defer d.release()
	if d.generate(text, fuzzed) != nil {
		return
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		n, ok := in.Shape.Elements()
		size := int64(in.Data.Size())
		if !ok || size > 8*int64(len(text)) || in.Type != tensor.Bytes && size != n*int64(in.Type.Size()) {
			t.Fatalf("%q: shape %s of %s has %d bytes", text, in.Shape, in.Type, size)
		}
	}
}

// within reports whether p is a part of whole's memory.
func within(p, whole []byte) bool {
	for i := range whole {
		if &whole[i] == &p[0] {
			return true
		}
	}
	return false
}
