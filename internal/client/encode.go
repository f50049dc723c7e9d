package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// A Request is an infer request before it is encoded.
type Request struct {
	Model, Version string // an empty version means the newest
	ID             string
	Inputs         []Tensor
	// Outputs are the requested outputs; none means all.
	Outputs    []Output
	Parameters []Parameter
	// Sequenced leaves space in the JSON for a sequence, which is filled in
	// when the request is sent.
	Sequenced bool
}

// An Output is a requested output. If it has a place, the server writes it
// there instead of sending it.
type Output struct {
	Name  string
	Place *Place
}

// A Place is a range of a registered shared memory region.
type Place struct {
	Region       string
	Offset, Size int
}

func (p *Place) parameters() []Parameter {
	if p == nil {
		return nil
	}
	list := []Parameter{{"shared_memory_region", p.Region}, {"shared_memory_byte_size", int64(p.Size)}}
	if p.Offset > 0 {
		list = append(list, Parameter{"shared_memory_offset", int64(p.Offset)})
	}
	return list
}

// A Tensor is an input with its encoded values: little-endian and row by row;
// each string follows its length in four bytes.
type Tensor struct {
	Name  string
	Type  tensor.Type
	Shape tensor.Shape
	Data  []byte
	// Place, unless nil, is where the server reads the data, which is not sent.
	Place *Place
}

// A Parameter is a parameter of the request: a bool, an int64, a string or a
// float64.
type Parameter struct {
	Name  string
	Value any
}

// A Format is how an HTTP body has tensors.
type Format int

// The formats.
const (
	Binary Format = iota // bytes after the JSON
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

// EncodeHTTP returns the path, the header and the body of a request with inputs
// in format in, which asks for outputs in format out.
func EncodeHTTP(r *Request, in, out Format) (path string, header []Header, body []byte, err error) {
	doc := jsonRequest{ID: r.ID, Inputs: []jsonInput{}, Parameters: map[string]any{}}
	for _, p := range r.Parameters {
		doc.Parameters[p.Name] = p.Value
	}
	if len(r.Outputs) == 0 && out == Binary {
		doc.Parameters["binary_data_output"] = true
	}
	if r.Sequenced {
		maps.Copy(doc.Parameters, sequenceRoom())
	}
	for _, o := range r.Outputs {
		p := members(o.Place)
		if p == nil {
			p = map[string]any{"binary_data": out == Binary}
		}
		doc.Outputs = append(doc.Outputs, jsonOutput{o.Name, p})
	}
	var tail []byte
	for i := range r.Inputs {
		t := &r.Inputs[i]
		j := jsonInput{Name: t.Name, Shape: t.Shape, Datatype: t.Type.String()}
		if t.Place != nil {
			j.Parameters = members(t.Place)
		} else if in == Binary {
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
	if in == Binary && tail != nil {
		header = []Header{{"Content-Type", "application/octet-stream"}, {"Inference-Header-Content-Length", fmt.Sprint(len(text))}}
	}
	return modelPath(r.Model, r.Version) + "/infer", header, append(text, tail...), nil
}

// members returns the parameters of a tensor in shared memory; nil when it is
// not.
func members(p *Place) map[string]any {
	var list map[string]any
	for _, v := range p.parameters() {
		if list == nil {
			list = make(map[string]any)
		}
		list[v.Name] = v.Value
	}
	return list
}

// marshal writes JSON without HTML escapes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// EncodeGRPC returns a request as an encoded ModelInferRequest with raw
// contents.
func EncodeGRPC(r *Request) ([]byte, error) {
	m := &pb.ModelInferRequest{ModelName: r.Model, ModelVersion: r.Version, Id: r.ID}
	var err error
	if m.Parameters, err = parameters(r.Parameters); err != nil {
		return nil, err
	}
	for i := range r.Inputs {
		t := &r.Inputs[i]
		in := &pb.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: t.Type.String(), Shape: t.Shape}
		if in.Parameters, err = parameters(t.Place.parameters()); err != nil {
			return nil, err
		}
		if t.Place == nil {
			m.RawInputContents = append(m.RawInputContents, t.Data)
		}
		m.Inputs = append(m.Inputs, in)
	}
	for _, o := range r.Outputs {
		out := &pb.ModelInferRequest_InferRequestedOutputTensor{Name: o.Name}
		if out.Parameters, err = parameters(o.Place.parameters()); err != nil {
			return nil, err
		}
		m.Outputs = append(m.Outputs, out)
	}
	return proto.Marshal(m)
}

// parameters converts a list to the protocol's map; nil when it is empty.
func parameters(list []Parameter) (map[string]*pb.InferParameter, error) {
	var all map[string]*pb.InferParameter
	for _, p := range list {
		v, err := parameter(p)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = make(map[string]*pb.InferParameter)
		}
		all[p.Name] = v
	}
	return all, nil
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
