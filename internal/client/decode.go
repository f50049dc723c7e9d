package client

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// An Answer is one output of an answer: in bytes, or in JSON.
type Answer struct {
	Name, Datatype string
	Data           []byte
	JSON           json.RawMessage // nil: the output is in bytes
}

// DecodeHTTP returns the outputs of an HTTP answer: JSON, followed by the bytes
// of the outputs that have a binary size.
func DecodeHTTP(body []byte) ([]Answer, error) {
	var head struct {
		Outputs []struct {
			Name, Datatype string
			Parameters     struct {
				Size *int `json:"binary_data_size"`
			}
			Data json.RawMessage
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&head); err != nil {
		return nil, err
	}
	tail := body[d.InputOffset():]
	var list []Answer
	for _, o := range head.Outputs {
		a := Answer{Name: o.Name, Datatype: o.Datatype, JSON: o.Data}
		if size := o.Parameters.Size; size != nil {
			if *size < 0 || *size > len(tail) {
				return nil, fmt.Errorf("output %q has %d bytes of %d that are left", o.Name, *size, len(tail))
			}
			a.JSON, a.Data, tail = nil, tail[:*size], tail[*size:]
		} else if a.JSON == nil {
			a.JSON = json.RawMessage("null")
		}
		list = append(list, a)
	}
	return list, nil
}

// DecodeGRPC returns the outputs of an encoded ModelInferResponse with raw
// contents.
func DecodeGRPC(message []byte) ([]Answer, error) {
	var m pb.ModelInferResponse
	if err := proto.Unmarshal(message, &m); err != nil {
		return nil, err
	}
	var list []Answer
	for i, data := range m.GetRawOutputContents() {
		if i < len(m.GetOutputs()) {
			o := m.GetOutputs()[i]
			list = append(list, Answer{Name: o.GetName(), Datatype: o.GetDatatype(), Data: data})
		}
	}
	return list, nil
}

// Bytes returns the output's values in their binary encoding, whichever way
// they were sent.
func (a *Answer) Bytes() ([]byte, error) {
	if a.JSON == nil {
		return a.Data, nil
	}
	var values []any
	d := json.NewDecoder(bytes.NewReader(a.JSON))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("output %q: %w", a.Name, err)
	}
	t, _ := tensor.ParseType(a.Datatype)
	var data []byte
	var err error
	for _, v := range values {
		if data, err = AppendElement(data, t, v); err != nil {
			return nil, fmt.Errorf("output %q: %w", a.Name, err)
		}
	}
	return data, nil
}
