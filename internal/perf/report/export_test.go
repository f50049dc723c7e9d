package report

import (
	"encoding/json"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/client"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

func TestOutputsOfAnHTTPAnswerAreJSONOrBytesBehindIt(t *testing.T) {
	answer := `{"model_name":"m","outputs":[{"name":"A","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}},` +
		`{"name":"B","datatype":"FP32","shape":[1],"data":[1.5]},{"name":"C","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}}]}` +
		"\x01\x00\xff\xff\x02\x00\x00\x00hi"
	answers, err := client.DecodeHTTP([]byte(answer))
	got := outputValues(answers)
	if err != nil || string(got["A"]) != "[1,-1]" || string(got["B"]) != "[1.5]" || string(got["C"]) != `"hi"` {
		t.Errorf("got %s, %v, want all three", got, err)
	}
	for _, text := range []string{"", "x", `{"outputs":[{"name":"A","datatype":"INT16","parameters":{"binary_data_size":4}}]}`, `{"outputs":[{"parameters":{"binary_data_size":-1}}]}`} {
		if got, err := client.DecodeHTTP([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestOutputsOfAGRPCAnswerAreItsRawContents(t *testing.T) {
	m := &pb.ModelInferResponse{
		Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "A", Datatype: "UINT8"}, {Name: "B", Datatype: "FP32"}}, RawOutputContents: [][]byte{{1, 2}},
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := client.DecodeGRPC(data)
	got := outputValues(answers)
	if err != nil || fmt.Sprintf("%s", got) != "map[A:[1,2]]" {
		t.Errorf("got %s, %v, want A alone, which has contents", got, err)
	}
}

func TestExportedValuesAreListsOrSingle(t *testing.T) {
	for _, c := range []struct {
		typ  tensor.Type
		data string
		want string
	}{
		{tensor.Uint8, "\x01\x02", "[1,2]"},
		{tensor.Uint8, "\x01", "1"},
		{tensor.Uint8, "", "[]"},
		{tensor.Bytes, string(client.AppendString(nil, "a,[b]")), `"a,[b]"`},
		{tensor.Bytes, string(client.AppendString(client.AppendString(nil, "a"), "b")), `["a","b"]`},
		{tensor.FP32, "\x00\x00\xc0\x7f", `{"b64":"AADAfw=="}`}, // not a number, which JSON does not have
		{tensor.FP32, "abc", `{"b64":"YWJj"}`},
	} {
		if got := exportValue(c.typ, []byte(c.data)); string(got) != c.want {
			t.Errorf("%s %q: got %s, want %s", c.typ, c.data, got, c.want)
		}
	}
}

func FuzzOutputs(f *testing.F) {
	f.Add([]byte(`{"outputs":[{"name":"A","datatype":"INT16","parameters":{"binary_data_size":2}}]}` + "\x01\x00"))
	f.Add([]byte{0x2a, 3, 0x0a, 1, 'A'})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func([]byte) ([]client.Answer, error){client.DecodeHTTP, client.DecodeGRPC} {
			answers, err := read(data)
			if err != nil {
				continue
			}
			for _, a := range answers {
				_, _ = a.Bytes() // must not panic
			}
			list := outputValues(answers)
			if _, err := json.Marshal(list); err != nil {
				t.Errorf("got %s from %q, which is not JSON: %v", list, data, err)
			}
		}
	})
}
