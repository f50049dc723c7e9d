package load

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// A Tensor is an FP32 input to send.
type Tensor struct {
	Name  string
	Shape []int64
	Data  []float32
}

// Raw returns the tensor's values as the binary extension and gRPC's raw
// contents have them: little-endian, row by row.
func (t Tensor) Raw() []byte {
	b := make([]byte, 0, 4*len(t.Data))
	for _, v := range t.Data {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// The JSON of an infer request, in the order that clients write it.
type (
	jsonRequest struct {
		Inputs     []jsonInput     `json:"inputs"`
		Parameters map[string]bool `json:"parameters,omitempty"`
	}
	jsonInput struct {
		Name       string         `json:"name"`
		Shape      []int64        `json:"shape"`
		Datatype   string         `json:"datatype"`
		Parameters map[string]int `json:"parameters,omitempty"`
		Data       []float32      `json:"data,omitempty"`
	}
)

// InferPath returns the path that infers with the newest version of a model.
func InferPath(model string) string { return "/v2/models/" + model + "/infer" }

// JSONInfer returns the header lines and the body of an infer request with the
// tensors as JSON numbers; the answer will be JSON too.
func JSONInfer(tensors ...Tensor) (header []string, body []byte, err error) {
	var r jsonRequest
	for _, t := range tensors {
		r.Inputs = append(r.Inputs, jsonInput{Name: t.Name, Shape: t.Shape, Datatype: "FP32", Data: t.Data})
	}
	body, err = json.Marshal(r)
	return []string{"Content-Type: application/json"}, body, err
}

// BinaryInfer returns the header lines and the body of an infer request with the
// tensors as bytes behind the JSON, which asks for an answer of the same kind.
func BinaryInfer(tensors ...Tensor) (header []string, body []byte, err error) {
	r := jsonRequest{Parameters: map[string]bool{"binary_data_output": true}}
	var raw []byte
	for _, t := range tensors {
		r.Inputs = append(r.Inputs, jsonInput{
			Name: t.Name, Shape: t.Shape, Datatype: "FP32",
			Parameters: map[string]int{"binary_data_size": 4 * len(t.Data)},
		})
		raw = append(raw, t.Raw()...)
	}
	body, err = json.Marshal(r)
	header = []string{
		"Content-Type: application/octet-stream",
		fmt.Sprintf("Inference-Header-Content-Length: %d", len(body)),
	}
	return header, append(body, raw...), err
}

// GRPCInfer returns an encoded ModelInferRequest with the tensors in its raw
// contents.
func GRPCInfer(model string, tensors ...Tensor) ([]byte, error) {
	r := &inferencepb.ModelInferRequest{ModelName: model}
	for _, t := range tensors {
		r.Inputs = append(r.Inputs, &inferencepb.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: "FP32", Shape: t.Shape})
		r.RawInputContents = append(r.RawInputContents, t.Raw())
	}
	return proto.Marshal(r)
}
