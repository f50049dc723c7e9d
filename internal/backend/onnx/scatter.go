package onnx

import (
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A scatter says how to split an output that does not have one row for each row
// of the batch: the requests' parts are concatenated, and the size of each
// follows from the shape of one of the request's inputs, the source.
type scatter struct {
	input  int // the source's place among the model's inputs
	source *port
}

// scatters returns the scatters of a configuration that CheckGraph has passed,
// by the names of the outputs.
func scatters(cfg *modelpb.ModelConfig, sig *model.Signature, inputs []port) map[string]*scatter {
	byName := make(map[string]*scatter)
	for _, b := range cfg.GetBatchOutput() {
		i := sig.Input(b.GetSourceInput()[0])
		for _, name := range b.GetTargetName() {
			byName[name] = &scatter{input: i, source: &inputs[i]}
		}
	}
	return byName
}

// cut computes each request's part of the output x, which has so many elements.
// A variable dimension of the output is the source's dimension at the same
// position.
func (s *scatter) cut(o *output, x *port, requests []*infer.Request, elements int64) error {
	o.shapes, o.starts = o.shapes[:0], append(o.starts[:0], 0)
	left := elements
	for _, r := range requests {
		var room [8]int64 // on the stack for usual ranks
		source := s.source.graphShape(room[:0], inputOf(r, s.input).Shape, r.Rows)
		begin := len(o.shapes)
		o.shapes = x.scatteredShape(o.shapes, source)
		n, ok := o.shapes[begin:].Elements()
		if !ok || n > left {
			return errScatter(s, x, elements)
		}
		left -= n
		o.starts = append(o.starts, int(elements-left))
	}
	if left > 0 {
		return errScatter(s, x, elements)
	}
	return nil
}

func errScatter(s *scatter, x *port, elements int64) error {
	return status.Errorf(status.Internal, "output '%s' has %d elements, which is not what shape %s makes with the sizes of input '%s' put in: "+
		"its dims do not fit the model, or batch_output names the wrong source_input", x.Name, elements, x.Full, s.source.Name)
}

// scatteredShape appends the client's shape to dst of the output for a request
// whose source has that shape to the graph.
func (x *port) scatteredShape(dst, source tensor.Shape) tensor.Shape {
	if x.batched {
		dst, source = append(dst, source[0]), source[1:]
	}
	return tensor.Substitute(dst, x.Dims, x.inner, source)
}

// scattered fills in the n-th request's part of the output.
func (o *output) scattered(out *infer.Output, n int) {
	rank := len(o.shapes) / (len(o.starts) - 1)
	out.Shape = append(out.Shape[:0], o.shapes[n*rank:(n+1)*rank]...)
	out.Data = o.slice(o.starts[n], o.starts[n+1], o.starts[len(o.starts)-1])
}
