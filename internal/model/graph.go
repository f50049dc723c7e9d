package model

import "shoal/internal/tensor"

// A Graph is what a model file says of itself, before any configuration.
type Graph struct {
	Inputs  []GraphTensor
	Outputs []GraphTensor
	// Overridable are inputs with a value of their own, which a request may
	// leave out. They are no part of Inputs.
	Overridable []GraphTensor
}

// A GraphTensor is an input or output of a graph. Dims has -1 for symbolic
// dimensions and includes the batch dimension where there is one.
type GraphTensor struct {
	Name string
	Type tensor.Type
	Dims tensor.Shape
}
