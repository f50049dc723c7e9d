package client

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// A Request is an infer request before it is encoded.
type Request struct {
	Model, Version string // an empty version means the newest
	ID             string
	Inputs         []Tensor
	// Outputs are the names wanted; none means all.
	Outputs    []string
	Parameters []Parameter
}

// A Tensor is an input with its values as the wire has them: little-endian and
// row by row, strings with their length in four bytes before each.
type Tensor struct {
	Name  string
	Type  tensor.Type
	Shape tensor.Shape
	Data  []byte
}

// A Parameter is a value that goes to the model's backend with the request:
// a bool, an int64, a string or a float64.
type Parameter struct {
	Name  string
	Value any
}

// A Format says how tensors lie in an HTTP body.
type Format int

// The formats.
const (
	Binary Format = iota // bytes behind the JSON
	JSON                 // numbers and strings inside it
)

// The JSON of an infer request, in the order that clients write it.
type (
	jsonRequest struct {
		ID         string         `json:"id,omitempty"`
		Parameters map[string]any `json:"parameters,omitempty"`
		Inputs     []jsonInput    `json:"inputs"`
		Outputs    []jsonOutput   `json:"outputs,omitempty"`
	}
	jsonInput struct {
		Name       string          `json:"name"`
		Shape      []int64         `json:"shape"`
		Datatype   string          `json:"datatype"`
		Parameters map[string]any  `json:"parameters,omitempty"`
		Data       json.RawMessage `json:"data,omitempty"`
	}
	jsonOutput struct {
		Name       string         `json:"name"`
		Parameters map[string]any `json:"parameters"`
	}
)

// EncodeHTTP returns the path, the header and the body of a request whose tensors
// are sent and asked for in the given formats.
func EncodeHTTP(r *Request, in, out Format) (path string, header []Header, body []byte, err error) {
	doc := jsonRequest{ID: r.ID, Inputs: []jsonInput{}, Parameters: map[string]any{}}
	for _, p := range r.Parameters {
		doc.Parameters[p.Name] = p.Value
	}
	if len(r.Outputs) == 0 && out == Binary {
		doc.Parameters["binary_data_output"] = true
	}
	for _, name := range r.Outputs {
		doc.Outputs = append(doc.Outputs, jsonOutput{name, map[string]any{"binary_data": out == Binary}})
	}
	var tail []byte
	for i := range r.Inputs {
		t := &r.Inputs[i]
		j := jsonInput{Name: t.Name, Shape: t.Shape, Datatype: t.Type.String()}
		if in == Binary {
			j.Parameters = map[string]any{"binary_data_size": len(t.Data)}
			tail = append(tail, t.Data...)
		} else if j.Data, err = AppendJSON(nil, t.Type, t.Data); err != nil {
			return "", nil, nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		doc.Inputs = append(doc.Inputs, j)
	}
	text, err := marshal(doc)
	if err != nil {
		return "", nil, nil, err
	}
	header = []Header{{"Content-Type", "application/json"}}
	if in == Binary {
		header = []Header{{"Content-Type", "application/octet-stream"}, {"Inference-Header-Content-Length", fmt.Sprint(len(text))}}
	}
	return modelPath(r.Model, r.Version) + "/infer", header, append(text, tail...), nil
}

// marshal writes JSON without the escapes that are meant for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// EncodeGRPC returns a request as an encoded ModelInferRequest with the tensors in
// its raw contents.
func EncodeGRPC(r *Request) ([]byte, error) {
	m := &pb.ModelInferRequest{ModelName: r.Model, ModelVersion: r.Version, Id: r.ID}
	for _, p := range r.Parameters {
		v, err := parameter(p)
		if err != nil {
			return nil, err
		}
		if m.Parameters == nil {
			m.Parameters = make(map[string]*pb.InferParameter)
		}
		m.Parameters[p.Name] = v
	}
	for i := range r.Inputs {
		t := &r.Inputs[i]
		m.Inputs = append(m.Inputs, &pb.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: t.Type.String(), Shape: t.Shape})
		m.RawInputContents = append(m.RawInputContents, t.Data)
	}
	for _, name := range r.Outputs {
		m.Outputs = append(m.Outputs, &pb.ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
	return proto.Marshal(m)
}

func parameter(p Parameter) (*pb.InferParameter, error) {
	switch v := p.Value.(type) {
	case bool:
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: v}}, nil
	case int64:
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: v}}, nil
	case float64:
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: v}}, nil
	case string:
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: v}}, nil
	default:
		return nil, fmt.Errorf("parameter %q has a value of type %T", p.Name, v)
	}
}
