package onnx

import (
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A port is one input or output of a model, with what is needed to convert
// between the client's shape and the graph's.
type port struct {
	model.Tensor
	batched bool // both shapes have the batch dimension in front
	scalar  bool // the graph has no dimensions where the configuration has [1]
	// inner is the graph's shape without the batch dimension. A ragged input
	// has no batch dimension in the graph; there it is the shape of a request's
	// part.
	inner tensor.Shape
	// scatter is set for an output that batch_output names.
	scatter *scatter
}

// newPort returns the port of a tensor for which the graph has that rank.
func newPort(t model.Tensor, batched bool, rank int) port {
	x := port{Tensor: t, batched: batched, inner: t.Dims}
	if t.Reshape != nil {
		x.inner = t.Reshape
	}
	// Without a batch dimension a configuration cannot say "no dimensions": it
	// has ones instead. CheckGraph has verified that they are all ones.
	if !batched && rank == 0 {
		x.scalar, x.inner = true, nil
	}
	return x
}

// graphShape appends the graph's shape to dst for a tensor with the client's
// shape, with the given number of rows instead of the client's.
func (x *port) graphShape(dst, client tensor.Shape, rows int) tensor.Shape {
	if x.batched {
		dst, client = append(dst, int64(rows)), client[1:]
	}
	switch {
	case x.scalar:
		return dst
	case x.Reshape != nil:
		return tensor.Substitute(dst, x.Reshape, x.Dims, client)
	}
	return append(dst, client...)
}

// clientShape appends the client's shape to dst for a tensor with the graph's
// shape, in a batch of so many rows.
func (x *port) clientShape(dst, graph tensor.Shape, rows int) (tensor.Shape, error) {
	inner := graph
	if x.batched {
		if len(graph) == 0 || graph[0] != int64(rows) {
			return dst, status.Errorf(status.Internal, "output '%s' has shape %s for a batch of %d rows: its first dimension must be the batch's; "+
				"set max_batch_size to 0 if the model does not batch along it", x.Name, graph, rows)
		}
		dst, inner = append(dst, graph[0]), graph[1:]
	}
	switch {
	case x.scalar && len(inner) == 0:
		return append(dst, x.Dims...), nil
	case x.Reshape == nil: // files that declare another number of dimensions than their runs have are served as they are
		return append(dst, inner...), nil
	case !x.inner.Accepts(inner):
		return dst, status.Errorf(status.Internal, "output '%s' has shape %s, but its configuration reshapes %s; correct its reshape", x.Name, graph, x.whole())
	}
	return tensor.Substitute(dst, x.Dims, x.Reshape, inner), nil
}

// whole returns the graph's shape in the configuration.
func (x *port) whole() tensor.Shape {
	if x.batched {
		return append(tensor.Shape{-1}, x.inner...)
	}
	return x.inner
}

// bindable reports whether the number of rows alone determines an output's
// shape, so that its memory can be allocated before the run.
func (x *port) bindable() bool { return x.Type != tensor.Bytes && x.inner.Fixed() && x.scatter == nil }

// graphOf converts a session's tensors to those of a model's graph.
func graphOf(infos []ort.TensorInfo) ([]model.GraphTensor, error) {
	var list []model.GraphTensor
	for _, t := range infos {
		if t.Kind != "" {
			return nil, status.Errorf(status.InvalidArgument, "Unsupported ONNX Type '%s' for I/O '%s', expected 'ONNX_TYPE_TENSOR'. "+
				"A classifier converted from scikit-learn has tensors only when it is converted with the option zipmap=False", t.Kind, t.Name)
		}
		if t.Type == tensor.Invalid {
			return nil, status.Errorf(status.InvalidArgument, "the element type of '%s' is not supported in inference requests; cast it inside the model", t.Name)
		}
		list = append(list, model.GraphTensor{Name: t.Name, Type: t.Type, Dims: t.Dims})
	}
	return list, nil
}
