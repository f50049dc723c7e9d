package client

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

func sample() *Request {
	return &Request{
		Model: "m/x", Version: "3", Outputs: []Output{{Name: "OUT"}},
		Inputs: []Tensor{
			{Name: "A", Type: tensor.Int16, Shape: tensor.Shape{1, 2}, Data: []byte{1, 0, 0xff, 0xff}},
			{Name: "S", Type: tensor.Bytes, Shape: tensor.Shape{1, 2}, Data: AppendString(AppendString(nil, "a<b"), "")},
		},
		Parameters: []Parameter{{"max_tokens", int64(256)}, {"hot", true}, {"name", "x"}},
	}
}

func TestEncodeHTTPWritesBinaryTensorsBehindTheJSON(t *testing.T) {
	path, header, body, err := EncodeHTTP(sample(), Binary, Binary)
	if err != nil {
		t.Fatal(err)
	}
	const text = `{"parameters":{"hot":true,"max_tokens":256,"name":"x"},"inputs":[` +
		`{"name":"A","shape":[1,2],"datatype":"INT16","parameters":{"binary_data_size":4}},` +
		`{"name":"S","shape":[1,2],"datatype":"BYTES","parameters":{"binary_data_size":11}}],` +
		`"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}`
	if want := text + "\x01\x00\xff\xff\x03\x00\x00\x00a<b\x00\x00\x00\x00"; string(body) != want {
		t.Errorf("got body %q, want %q", body, want)
	}
	wantHeader := []Header{{"Content-Type", "application/octet-stream"}, {"Inference-Header-Content-Length", strconv.Itoa(len(text))}}
	if diff := cmp.Diff(wantHeader, header); path != "/v2/models/m%2Fx/versions/3/infer" || diff != "" {
		t.Errorf("got path %s and header (-want +got):\n%s", path, diff)
	}
}

func TestEncodeHTTPWritesJSONTensorsInside(t *testing.T) {
	r := sample()
	r.Outputs, r.Parameters, r.Version = nil, nil, ""
	path, header, body, err := EncodeHTTP(r, JSON, JSON)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"inputs":[{"name":"A","shape":[1,2],"datatype":"INT16","data":[1,-1]},` +
		`{"name":"S","shape":[1,2],"datatype":"BYTES","data":["a<b",""]}]}`
	if string(body) != want || path != "/v2/models/m%2Fx/infer" || len(header) != 1 {
		t.Errorf("got %s, %v, %s, want %s", path, header, body, want)
	}
}

func TestEncodeHTTPAsksForAllOutputsAsBytes(t *testing.T) {
	_, _, body, err := EncodeHTTP(&Request{Model: "m"}, JSON, Binary)
	if want := `{"parameters":{"binary_data_output":true},"inputs":[]}`; err != nil || string(body) != want {
		t.Errorf("got %s, %v, want %s", body, err, want)
	}
}

func TestEncodeGRPCHasEveryPart(t *testing.T) {
	data, err := EncodeGRPC(sample())
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.ModelInferRequest{}
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	if m.ModelName != "m/x" || m.ModelVersion != "3" || len(m.Inputs) != 2 || m.Inputs[1].Datatype != "BYTES" ||
		len(m.RawInputContents) != 2 || len(m.RawInputContents[1]) != 11 || m.Outputs[0].Name != "OUT" ||
		m.Parameters["max_tokens"].GetInt64Param() != 256 || !m.Parameters["hot"].GetBoolParam() || m.Parameters["name"].GetStringParam() != "x" {
		t.Errorf("got %v, want all of the request", m)
	}
	if _, err := EncodeGRPC(&Request{Parameters: []Parameter{{"x", []int{1}}}}); err == nil {
		t.Error("a parameter of an unknown type: got no error, want one")
	}
}

func TestElementsComeBackFromJSON(t *testing.T) {
	for _, c := range []struct {
		typ  tensor.Type
		text string // a JSON list
	}{
		{tensor.Bool, `[true,false]`},
		{tensor.Uint8, `[0,255]`},
		{tensor.Int8, `[-128,127]`},
		{tensor.Uint16, `[65535]`},
		{tensor.Int16, `[-32768]`},
		{tensor.Uint32, `[4294967295]`},
		{tensor.Int32, `[-2147483648]`},
		{tensor.Uint64, `[18446744073709551615]`},
		{tensor.Int64, `[-9223372036854775808,9223372036854775807]`},
		{tensor.FP16, `[0,1,-2.5,65504,6.1035156e-05,5.9604645e-08,0.33325195]`},
		{tensor.BF16, `[0,1,-2.5,3.3895314e+38]`},
		{tensor.FP32, `[0,1,-2.5,3.4028235e+38,1e-45]`},
		{tensor.FP64, `[1,0.1,5e-324]`},
		{tensor.Bytes, `["","ü"]`},
	} {
		var list []any
		d := json.NewDecoder(stringReader(c.text))
		d.UseNumber()
		if err := d.Decode(&list); err != nil {
			t.Fatal(err)
		}
		var data []byte
		for _, v := range list {
			var err error
			if data, err = AppendElement(data, c.typ, v); err != nil {
				t.Errorf("%s %v: %v", c.typ, v, err)
			}
		}
		if got, err := AppendJSON(nil, c.typ, data); err != nil || string(got) != c.text {
			t.Errorf("%s: got %s, %v, want %s", c.typ, got, err, c.text)
		}
	}
}

func TestElementsOfAnotherTypeAreRefused(t *testing.T) {
	for _, c := range []struct {
		typ tensor.Type
		v   any
	}{
		{tensor.Int32, json.Number("1.5")},
		{tensor.Uint8, json.Number("256")},
		{tensor.Uint8, json.Number("-1")},
		{tensor.Bool, json.Number("1")},
		{tensor.Bytes, json.Number("1")},
		{tensor.FP32, "1"},
		{tensor.Int32, true},
		{tensor.FP32, nil},
		{tensor.FP64, json.Number("1e999")},
	} {
		if b, err := AppendElement(nil, c.typ, c.v); err == nil {
			t.Errorf("%s %v: got %v, want an error", c.typ, c.v, b)
		}
	}
}

func TestHalfPrecisionKeepsEveryNumber(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := tensor.HalfToFloat(h)
		if f != f {
			if back := tensor.HalfToFloat(floatToHalf(f)); back == back {
				t.Fatalf("%#x: got the number %v, want none", h, back)
			}
			continue
		}
		if got := floatToHalf(f); got != h {
			t.Fatalf("%#x is %v: got %#x back", h, f, got)
		}
	}
	for f, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1e-9: 0, float32(math.Inf(-1)): 0xfc00, 2049: 0x6800} {
		if got := floatToHalf(f); got != want {
			t.Errorf("%v: got %#x, want %#x", f, got, want)
		}
	}
}

func FuzzStrings(f *testing.F) {
	f.Add(AppendString(AppendString(nil, "a"), ""))
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Strings(data)
		if err != nil {
			return
		}
		var again []byte
		for _, s := range list {
			again = AppendString(again, s)
		}
		if string(again) != string(data) {
			t.Errorf("got %q from %q", again, data)
		}
	})
}

func TestTensorsInSharedMemoryAreNamedNotSent(t *testing.T) {
	r := &Request{
		Model:   "m",
		Inputs:  []Tensor{{Name: "IN", Type: tensor.FP32, Shape: tensor.Shape{1, 2}, Data: make([]byte, 8), Place: &Place{Region: "in", Offset: 16, Size: 8}}},
		Outputs: []Output{{Name: "OUT", Place: &Place{Region: "out", Size: 64}}},
	}
	_, header, body, err := EncodeHTTP(r, Binary, Binary)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"inputs":[{"name":"IN","shape":[1,2],"datatype":"FP32","parameters":{"shared_memory_byte_size":8,"shared_memory_offset":16,"shared_memory_region":"in"}}],` +
		`"outputs":[{"name":"OUT","parameters":{"shared_memory_byte_size":64,"shared_memory_region":"out"}}]}`
	if string(body) != want || len(header) != 1 || header[0].Value != "application/json" {
		t.Errorf("got %v %s, want %s and nothing behind it", header, body, want)
	}
	data, err := EncodeGRPC(r)
	if err != nil {
		t.Fatal(err)
	}
	var m pb.ModelInferRequest
	if err := proto.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	in, out := m.Inputs[0].Parameters, m.Outputs[0].Parameters
	if len(m.RawInputContents) != 0 || in["shared_memory_region"].GetStringParam() != "in" || in["shared_memory_offset"].GetInt64Param() != 16 ||
		in["shared_memory_byte_size"].GetInt64Param() != 8 || out["shared_memory_region"].GetStringParam() != "out" {
		t.Errorf("got %v, want both tensors named", &m)
	}
}

func TestSequencedRequestsHaveRoomForTheirSequence(t *testing.T) {
	_, _, body, err := EncodeHTTP(&Request{Model: "m", Sequenced: true}, Binary, Binary)
	if err != nil || !strings.Contains(string(body), `"sequence_end":false,"sequence_id":18446744073709551615,"sequence_start":false`) {
		t.Errorf("got %s, %v, want the hole that is filled in when it is sent", body, err)
	}
}
