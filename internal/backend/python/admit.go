package python

import (
	"encoding/binary"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// admit sorts out the requests whose data will not do, gives them their error
// and puts the others into r.live. It returns the rows of those.
func (r *run) admit(requests []*infer.Request) (rows int) {
	r.live = r.live[:0]
	for _, q := range requests {
		q.Err = r.check(q)
		if q.Err == nil {
			r.live = append(r.live, q)
			rows += q.Rows
		}
	}
	return rows
}

// check says why a request cannot run. The engine has checked it against the
// signature; what is left is the content of strings, and what would have us
// write beyond a tensor.
func (r *run) check(q *infer.Request) error {
	m := r.in.model
	if m.decoupled && q.Stream == nil {
		return status.Errorf(status.Unsupported, "doesn't support models with decoupled transaction policy")
	}
	for j := range q.Inputs {
		input := &q.Inputs[j]
		if input.Index < 0 || input.Index >= len(m.inputs) || j > 0 && input.Index <= q.Inputs[j-1].Index {
			return status.Errorf(status.Internal, "BUG: the inputs of a request to model '%s' are not in order", m.sig.Name)
		}
		if err := r.checkInput(&m.inputs[input.Index], input, q.Rows); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) checkInput(x *port, input *infer.Input, rows int) error {
	name := r.in.model.sig.Name
	if len(input.Shape) != len(x.Full) {
		return status.Errorf(status.Internal, "BUG: input '%s' of model '%s' has shape %s, want %s", x.Name, name, input.Shape, x.Full)
	}
	if x.batched && input.Shape[0] != int64(rows) {
		return status.Errorf(status.InvalidArgument, "input '%s' batch size does not match other inputs for '%s'", x.Name, name)
	}
	if x.Type == tensor.Bytes {
		elements, ok := input.Shape.Elements()
		if !ok {
			elements = -1 // no number of strings will do
		}
		r.scratch = r.scratch[:0]
		return checkStrings(name, x.Name, r.contiguous(input.Data), elements)
	}
	want, ok := input.Shape.Bytes(x.Type)
	if got := input.Data.Size(); !ok || int64(got) != want {
		return status.Errorf(status.InvalidArgument, "input byte size mismatch for input '%s' for model '%s'. Expected %d, got %d", x.Name, name, want, got)
	}
	var room [maxRank]int64
	inner := x.handlerShape(room[:0], input.Shape, int64(rows))
	if n, ok := inner.Bytes(x.Type); !ok || n != want {
		return status.Errorf(status.Internal, "input '%s': the reshape from %s to %s changes the number of elements", x.Name, x.Dims, x.inner)
	}
	return nil
}

// contiguous returns data in one piece, in scratch memory if it was not.
func (r *run) contiguous(d infer.Data) []byte {
	if len(d.Rest) == 0 {
		return d.First
	}
	r.scratch = d.Contiguous(r.scratch)
	return r.scratch
}

// checkStrings walks over an input of strings, as many as its shape has.
func checkStrings(model, input string, data []byte, want int64) error {
	count := int64(0)
	for len(data) > 0 {
		if count == want {
			return status.Errorf(status.InvalidArgument, "unexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", count+1, input, model, want)
		}
		if len(data) < 4 {
			return status.Errorf(status.InvalidArgument, "incomplete string length indicator for inference input '%s' for model '%s', expecting 4 bytes but only %d bytes available. "+
				"Please make sure the string length indicator is in one buffer.", input, model, len(data))
		}
		n := int64(binary.LittleEndian.Uint32(data))
		data = data[4:]
		if n > int64(len(data)) {
			return status.Errorf(status.InvalidArgument, "incomplete string data for inference input '%s', expecting string of length %d but only %d bytes available", input, n, len(data))
		}
		data = data[n:]
		count++
	}
	if count != want {
		return status.Errorf(status.InvalidArgument, "expected %d string elements for inference input '%s' for model '%s', got %d", want, input, model, count)
	}
	return nil
}
