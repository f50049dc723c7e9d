package model

import "shoal/internal/tensor"

// A Graph is a model file's description of itself, before any configuration.
type Graph struct {
	Inputs  []GraphTensor
	Outputs []GraphTensor
	// Overridable are inputs with a default value, which a request may leave
	// out. Inputs does not have them.
	Overridable []GraphTensor
}

// A GraphTensor is an input or output of a graph. Dims has -1 for symbolic
// dimensions and includes the batch dimension where there is one.
type GraphTensor struct {
	Name string
	Type tensor.Type
	Dims tensor.Shape
}
