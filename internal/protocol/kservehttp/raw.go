package kservehttp

import (
	"encoding/binary"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// decodeRaw makes a request of a body that is the data of the model's only
// input, whose shape is deduced from the data's size.
func decodeRaw(r *infer.Request, sig *model.Signature, data []byte, maxInput int64) error {
	if n := len(sig.Inputs); n != 1 {
		return rawError("Raw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model configuration", n, sig.Name)
	}
	if n := int64(len(data)); n > maxInput {
		return errRawTooLarge(n, maxInput)
	}
	t := &sig.Inputs[0]
	shape := r.Dims(len(t.Dims) + 1)
	if sig.MaxBatch > 0 {
		shape = append(shape, 1)
	}
	if t.Type == tensor.Bytes {
		if len(t.Dims) != 1 || t.Dims[0] != 1 {
			return rawError("For BYTE datatype raw input '%s', the model must have input shape [1]", t.Name)
		}
		framed, err := r.GrowWithin(4 + len(data))
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(framed, uint32(len(data)))
		copy(framed[4:], data)
		shape, data = append(shape, 1), framed
	} else {
		var err error
		if shape, err = deduce(shape, t, sig.Name, int64(len(data))); err != nil {
			return err
		}
	}
	in := r.AddInput()
	in.Name, in.Type, in.Shape, in.Data = t.Name, t.Type, shape, infer.Data{First: data, Private: true}
	return nil
}

// deduce appends t's dimensions to shape, with the one that may vary set so
// that the tensor has size bytes.
func deduce(shape tensor.Shape, t *model.Tensor, modelName string, size int64) (tensor.Shape, error) {
	vary, rest := -1, int64(t.Type.Size())
	for _, d := range t.Dims {
		if d >= 0 {
			rest *= d
		} else if vary >= 0 {
			return nil, rawError("The shape of the raw input '%s' can not be deduced because there are more than one variable-sized dimension", t.Name)
		} else {
			vary = len(shape)
		}
		shape = append(shape, d)
	}
	if vary >= 0 && rest > 0 {
		shape[vary] = size / rest
		rest *= shape[vary]
	}
	if rest != size {
		return nil, rawError("input byte size mismatch for input 'raw_input' for model '%s'. Expected %d, got %d", modelName, rest, size)
	}
	return shape, nil
}

// rawError is a fault of a raw request, which has no id.
func rawError(format string, args ...any) error {
	return status.Errorf(status.InvalidArgument, "[request id: <id_unknown>] "+format, args...)
}
