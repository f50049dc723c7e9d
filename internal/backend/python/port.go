package python

import (
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A port is an input or output of a model, with what is needed to convert
// between the client's shape and the handler's.
type port struct {
	model.Tensor
	batched bool         // both shapes have the batch dimension in front
	inner   tensor.Shape // the handler's shape without the batch dimension
}

func newPort(t model.Tensor, batched bool) port {
	x := port{Tensor: t, batched: batched, inner: t.Dims}
	if t.Reshape != nil {
		x.inner = t.Reshape
	}
	return x
}

// rank returns the number of dimensions that the handler sees.
func (x *port) rank() int {
	if x.batched {
		return len(x.inner) + 1
	}
	return len(x.inner)
}

// handlerShape appends the handler's shape to dst for a tensor with the
// client's shape, with the given number of rows instead of the client's.
func (x *port) handlerShape(dst, client tensor.Shape, rows int64) tensor.Shape {
	if x.batched {
		dst, client = append(dst, rows), client[1:]
	}
	if x.Reshape != nil {
		return tensor.Substitute(dst, x.Reshape, x.Dims, client)
	}
	return append(dst, client...)
}

// clientShape appends the client's shape to dst for a tensor that the handler
// returned for so many rows, or returns what is wrong with it.
func (x *port) clientShape(dst, got tensor.Shape, rows int) (tensor.Shape, error) {
	inner, want := got, x.inner
	if x.batched {
		if len(got) == 0 || got[0] != int64(rows) {
			return dst, x.shapeFault(got, rows)
		}
		dst, inner = append(dst, got[0]), got[1:]
	}
	if !want.Accepts(inner) {
		return dst, x.shapeFault(got, rows)
	}
	if x.Reshape != nil {
		return tensor.Substitute(dst, x.Dims, x.Reshape, inner), nil
	}
	return append(dst, inner...), nil
}

func (x *port) shapeFault(got tensor.Shape, rows int) error {
	want := x.inner
	if x.batched {
		want = append(tensor.Shape{int64(rows)}, x.inner...)
	}
	return status.Errorf(status.Internal, "output '%s' has shape %s, want %s (-1 is any size); the model's code or the dims in its configuration are wrong", x.Name, got, want)
}
