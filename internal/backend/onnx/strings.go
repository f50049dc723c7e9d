package onnx

import (
	"encoding/binary"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/status"
)

// prefix is the size of the length in front of each element of a BYTES tensor.
const prefix = 4

// checkStrings says what is wrong with the elements of a BYTES input.
func checkStrings(model, input string, data []byte, want int64) error {
	var n int64
	for ; len(data) > 0; n++ {
		if len(data) < prefix {
			return status.Errorf(status.InvalidArgument, "incomplete string length indicator for inference input '%s' for model '%s', expecting %d bytes but only %d bytes available. "+
				"Please make sure the string length indicator is in one buffer.", input, model, prefix, len(data))
		}
		if n == want {
			return status.Errorf(status.InvalidArgument, "unexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", n+1, input, model, want)
		}
		size := int(binary.LittleEndian.Uint32(data))
		data = data[prefix:]
		if size > len(data) {
			return status.Errorf(status.InvalidArgument, "incomplete string data for inference input '%s', expecting string of length %d but only %d bytes available",
				input, size, len(data))
		}
		data = data[size:]
	}
	if n != want {
		return status.Errorf(status.InvalidArgument, "expected %d string elements for inference input '%s' for model '%s', got %d", want, input, model, n)
	}
	return nil
}

// contiguous returns an input's content in one piece, in the instance's own
// memory when it came in several.
func (in *instance) contiguous(d infer.Data) []byte {
	if len(d.Rest) == 0 {
		return d.First
	}
	in.scratch = d.Contiguous(in.scratch)
	return in.scratch
}

// gatherStrings puts the elements of all requests, which checkStrings has seen,
// into a tensor of strings. It returns the number of bytes.
func (in *instance) gatherStrings(v ort.Value, at *planned, requests []*infer.Request) (total int, err error) {
	element := 0
	for _, r := range requests {
		total += r.Inputs[at.place].Data.Size()
		for data := in.contiguous(r.Inputs[at.place].Data); len(data) > 0; element++ {
			size := int(binary.LittleEndian.Uint32(data))
			data = data[prefix:]
			if err := in.call.SetString(v, element, data[:size]); err != nil {
				return total, err
			}
			data = data[size:]
		}
	}
	return total, nil
}

// readStrings brings the elements of a tensor of strings into the slot's
// memory, each with its length in front, and notes where each begins.
func (s *slot) readStrings(o *output, v ort.Value, elements int64) error {
	total, err := s.call.StringsLen(v)
	if err != nil {
		return err
	}
	n := int(elements)
	s.text = grow(s.text, total)
	o.begins = grow(o.begins, n+1)
	if err := s.call.Strings(v, s.text, o.begins[:n]); err != nil {
		return err
	}
	o.begins[n] = uint64(total)
	o.text = grow(o.text, total+prefix*n)[:0]
	for e := range n {
		from, to := o.begins[e], o.begins[e+1]
		o.begins[e] = uint64(len(o.text))
		o.text = binary.LittleEndian.AppendUint32(o.text, uint32(to-from))
		o.text = append(o.text, s.text[from:to]...)
	}
	o.begins[n] = uint64(len(o.text))
	o.data = o.text
	return nil
}

// grow returns a slice of length n, b itself when it is large enough and not
// far too large.
func grow[T any](b []T, n int) []T {
	if cap(b) < n || cap(b) > keptSize && n < cap(b)/4 {
		return make([]T, n)
	}
	return b[:n]
}
