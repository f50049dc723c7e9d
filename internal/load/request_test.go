package load

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

func TestJSONInferIsTheRequestClientsWrite(t *testing.T) {
	header, body, err := JSONInfer(testTensor(3))
	const want = `{"inputs":[{"name":"INPUT0","shape":[1,3],"datatype":"FP32","data":[0.5,1.5,2.5]}]}`
	if err != nil || string(body) != want || len(header) != 1 || header[0] != "Content-Type: application/json" {
		t.Errorf("got %q, %s, %v, want %s", header, body, err, want)
	}
}

func TestBinaryInferPutsTheTensorBehindTheJSON(t *testing.T) {
	header, body, err := BinaryInfer(testTensor(1))
	const json = `{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}}],"parameters":{"binary_data_output":true}}`
	if want := json + "\x00\x00\x00\x3f"; err != nil || string(body) != want {
		t.Errorf("got %q, %v, want %q", body, err, want)
	}
	if got, want := strings.Join(header, ", "), fmt.Sprintf("Content-Type: application/octet-stream, Inference-Header-Content-Length: %d", len(json)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInferRequestsTakeSeveralTensorsInOrder(t *testing.T) {
	first, second := testTensor(1), testTensor(2)
	second.Name = "INPUT1"
	header, body, err := BinaryInfer(first, second)
	const json = `{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}},` +
		`{"name":"INPUT1","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}`
	if want := json + "\x00\x00\x00\x3f" + "\x00\x00\x00\x3f" + "\x00\x00\xc0\x3f"; err != nil || string(body) != want {
		t.Errorf("got %q, %v, want %q", body, err, want)
	}
	if got, want := header[1], fmt.Sprintf("Inference-Header-Content-Length: %d", len(json)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	message, err := GRPCInfer("m", first, second)
	if err != nil {
		t.Fatal(err)
	}
	var r inferencepb.ModelInferRequest
	if err := proto.Unmarshal(message, &r); err != nil || len(r.Inputs) != 2 || r.Inputs[1].Name != "INPUT1" || len(r.RawInputContents[1]) != 8 {
		t.Errorf("got %v, %v, want both tensors", &r, err)
	}
}
