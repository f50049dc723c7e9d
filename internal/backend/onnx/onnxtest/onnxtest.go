// Package onnxtest writes small ONNX model files for tests, so that they need
// no Python. It supports what those tests need of the format.
package onnxtest

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/tensor"
)

// A Model is a graph to be written as a model file.
type Model struct {
	Inputs       []Tensor
	Outputs      []Tensor
	Nodes        []Node
	Initializers []Initializer
	Opset        int64 // 0 means 17
	IR           int64 // 0 means 8
	// Domains are operator sets besides ONNX's own, by their versions.
	Domains map[string]int64
}

// A Tensor is an input or output of a graph.
type Tensor struct {
	Name string
	Type tensor.Type
	Dims []any // an int64 or int for a fixed dimension, a string for a symbolic one
	// Kind is "tensor" when empty; "sequence" makes it a sequence of such
	// tensors, "map" a map from int64 to them.
	Kind string
	// Shapeless leaves the shape out altogether.
	Shapeless bool
}

// A Node applies an operator.
type Node struct {
	Op      string
	Domain  string
	Inputs  []string
	Outputs []string
	Attrs   []Attr
}

// An Attr is an attribute of a node: an int64, a float32, a string, a []int64
// or a Model, whose graph becomes a subgraph.
type Attr struct {
	Name  string
	Value any
}

// An Initializer is a constant of the graph.
type Initializer struct {
	Name string
	Type tensor.Type
	Dims []int64
	Raw  []byte // little-endian
	// External, when set, names a file beside the model that has the content
	// in place of Raw.
	External string
}

// NodeOf returns a node without attributes.
func NodeOf(op string, inputs []string, outputs ...string) Node {
	return Node{Op: op, Inputs: inputs, Outputs: outputs}
}

// elements are ONNX's numbers of the element types.
var elements = map[tensor.Type]uint64{
	tensor.FP32: 1, tensor.Uint8: 2, tensor.Int8: 3, tensor.Uint16: 4, tensor.Int16: 5, tensor.Int32: 6, tensor.Int64: 7,
	tensor.Bytes: 8, tensor.Bool: 9, tensor.FP16: 10, tensor.FP64: 11, tensor.Uint32: 12, tensor.Uint64: 13, tensor.BF16: 16,
}

// Marshal returns the model as the bytes of a file.
func (m Model) Marshal() []byte {
	var b []byte
	b = number(b, 1, uint64(orDefault(m.IR, 8)))
	b = text(b, 2, "onnxtest")
	b = message(b, 7, m.graph())
	b = message(b, 8, number(text(nil, 1, ""), 2, uint64(orDefault(m.Opset, 17))))
	for domain, version := range m.Domains {
		b = message(b, 8, number(text(nil, 1, domain), 2, uint64(version)))
	}
	return b
}

func (m Model) graph() []byte {
	var b []byte
	for _, n := range m.Nodes {
		b = message(b, 1, n.marshal())
	}
	b = text(b, 2, "graph")
	for _, i := range m.Initializers {
		b = message(b, 5, i.marshal())
	}
	for _, t := range m.Inputs {
		b = message(b, 11, t.marshal())
	}
	for _, t := range m.Outputs {
		b = message(b, 12, t.marshal())
	}
	return b
}

func (t Tensor) marshal() []byte {
	tt := number(nil, 1, elements[t.Type])
	if !t.Shapeless {
		tt = message(tt, 2, t.shape())
	}
	typ := message(nil, 1, tt)
	switch t.Kind {
	case "sequence":
		typ = message(nil, 4, message(nil, 1, typ))
	case "map":
		typ = message(nil, 5, message(number(nil, 1, elements[tensor.Int64]), 2, typ))
	}
	return message(text(nil, 1, t.Name), 2, typ)
}

func (t Tensor) shape() []byte {
	var b []byte
	for _, d := range t.Dims {
		switch d := d.(type) {
		case int:
			b = message(b, 1, number(nil, 1, uint64(d)))
		case int64:
			b = message(b, 1, number(nil, 1, uint64(d)))
		case string:
			b = message(b, 1, text(nil, 2, d))
		default:
			panic("onnxtest: a dimension is an int, an int64 or a string")
		}
	}
	return b
}

func (n Node) marshal() []byte {
	var b []byte
	for _, s := range n.Inputs {
		b = text(b, 1, s)
	}
	for _, s := range n.Outputs {
		b = text(b, 2, s)
	}
	b = text(b, 4, n.Op)
	for _, a := range n.Attrs {
		b = message(b, 5, a.marshal())
	}
	if n.Domain != "" {
		b = text(b, 7, n.Domain)
	}
	return b
}

func (a Attr) marshal() []byte {
	b := text(nil, 1, a.Name)
	kind := uint64(0)
	switch v := a.Value.(type) {
	case float32:
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(v))
		kind = 1
	case int64:
		b = number(b, 3, uint64(v))
		kind = 2
	case string:
		b = text(b, 4, v)
		kind = 3
	case Model:
		b = message(b, 6, v.graph())
		kind = 5
	case []int64:
		for _, i := range v {
			b = number(b, 8, uint64(i))
		}
		kind = 7
	default:
		panic("onnxtest: no such kind of attribute")
	}
	return number(b, 20, kind)
}

func (i Initializer) marshal() []byte {
	var b []byte
	for _, d := range i.Dims {
		b = number(b, 1, uint64(d))
	}
	b = number(b, 2, elements[i.Type])
	b = text(b, 8, i.Name)
	if i.External == "" {
		return text(b, 9, string(i.Raw))
	}
	b = message(b, 13, text(text(nil, 1, "location"), 2, i.External))
	return number(b, 14, 1)
}

// Floats returns the little-endian bytes of the values.
func Floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// Int64s returns the little-endian bytes of the values.
func Int64s(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func orDefault(v, d int64) int64 {
	if v == 0 {
		return d
	}
	return v
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}
