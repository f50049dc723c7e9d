package onnxtest

import "shoal/internal/tensor"

// Identity returns a model with one input IN and one output OUT of the type,
// with the batch dimension "N" in front of dims, whose output is its input.
func Identity(t tensor.Type, dims ...any) Model {
	dims = append([]any{"N"}, dims...)
	return Model{
		Inputs:  []Tensor{{Name: "IN", Type: t, Dims: dims}},
		Outputs: []Tensor{{Name: "OUT", Type: t, Dims: dims}},
		Nodes:   []Node{NodeOf("Identity", []string{"IN"}, "OUT")},
	}
}

// AddSub returns a model that adds and subtracts its two inputs, like Triton's
// "simple": INPUT0, INPUT1 to OUTPUT0, OUTPUT1, each [N, width].
func AddSub(t tensor.Type, width int) Model {
	dims := []any{"N", width}
	return Model{
		Inputs:  []Tensor{{Name: "INPUT0", Type: t, Dims: dims}, {Name: "INPUT1", Type: t, Dims: dims}},
		Outputs: []Tensor{{Name: "OUTPUT0", Type: t, Dims: dims}, {Name: "OUTPUT1", Type: t, Dims: dims}},
		Nodes: []Node{
			NodeOf("Add", []string{"INPUT0", "INPUT1"}, "OUTPUT0"),
			NodeOf("Sub", []string{"INPUT0", "INPUT1"}, "OUTPUT1"),
		},
	}
}
