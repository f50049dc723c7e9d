package model

import (
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// A Signature is the form of a model's requests and answers: the part of a
// configuration that every request is checked against. It is made once, when
// the model loads, and does not change.
type Signature struct {
	Name string
	// MaxBatch is the largest number of rows in one execution; 0 when the
	// model has no batch dimension.
	MaxBatch int
	Inputs   []Tensor
	Outputs  []Tensor
	// Required is the number of inputs that are not optional.
	Required int
}

// A Tensor describes one input or output of a model.
type Tensor struct {
	Name string
	Type tensor.Type
	// Dims is the shape without the batch dimension, as clients see it; -1 is
	// a dimension of any size.
	Dims tensor.Shape
	// Full is Dims with -1 in front when the model has a batch dimension.
	Full tensor.Shape
	// Reshape is the shape that the backend sees instead of Dims; nil when it
	// is the same.
	Reshape  tensor.Shape
	Optional bool
	Ragged   bool
	// Labels name the classes of an output, by index.
	Labels []string
}

// NewSignature returns the signature of a normalised configuration. Labels are
// left empty.
func NewSignature(cfg *modelpb.ModelConfig) *Signature {
	s := &Signature{Name: cfg.GetName(), MaxBatch: int(cfg.GetMaxBatchSize())}
	for _, in := range cfg.GetInput() {
		t := s.tensor(in.GetName(), in.GetDataType(), in.GetDims(), in.GetReshape())
		t.Optional, t.Ragged = in.GetOptional(), in.GetAllowRaggedBatch()
		if !t.Optional {
			s.Required++
		}
		s.Inputs = append(s.Inputs, t)
	}
	for _, out := range cfg.GetOutput() {
		s.Outputs = append(s.Outputs, s.tensor(out.GetName(), out.GetDataType(), out.GetDims(), out.GetReshape()))
	}
	return s
}

func (s *Signature) tensor(name string, t modelpb.DataType, dims []int64, reshape *modelpb.ModelTensorReshape) Tensor {
	d := Tensor{Name: name, Type: tensor.Type(t), Dims: tensor.Shape(dims)}
	if s.MaxBatch > 0 {
		d.Full = append(tensor.Shape{-1}, dims...)
	} else {
		d.Full = d.Dims
	}
	if reshape != nil {
		d.Reshape = append(tensor.Shape{}, reshape.GetShape()...) // not nil, even when empty
	}
	return d
}

// Input returns the index of the input with that name, -1 when there is none.
func (s *Signature) Input(name string) int { return find(s.Inputs, name) }

// Output returns the index of the output with that name, -1 when there is none.
func (s *Signature) Output(name string) int { return find(s.Outputs, name) }

func find(ts []Tensor, name string) int {
	for i := range ts {
		if ts[i].Name == name {
			return i
		}
	}
	return -1
}
