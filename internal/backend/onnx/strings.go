package onnx

import (
	"encoding/binary"

	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
)

// prefix is the size of the length in front of each element of a BYTES tensor.
const prefix = 4

// gatherStrings copies the elements of all requests, which the engine has
// checked, into a string tensor. It returns the number of bytes.
func (in *inputSlot) gatherStrings(v ort.Value, at *planned, requests []*infer.Request) (total int, err error) {
	element := 0
	for _, r := range requests {
		input := at.in(r)
		if input == nil {
			return total, errMisfit(at.port)
		}
		total += input.Data.Size()
		for data := input.Data.Contiguous(nil); len(data) > 0; element++ {
			size := int(binary.LittleEndian.Uint32(data))
			data = data[prefix:]
			if element == at.strings {
				return total, errMisfit(at.port)
			}
			if err := in.call.SetString(v, element, data[:size]); err != nil {
				return total, err
			}
			data = data[size:]
		}
	}
	if element < at.strings { // clear what an earlier client left
		return total, errMisfit(at.port)
	}
	return total, nil
}

// readStrings copies the elements of a string tensor into the slot's memory,
// each after its length, and stores their offsets.
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

// grow returns a slice of length n: b itself unless it is too small or far too
// large.
func grow[T any](b []T, n int) []T {
	if cap(b) < n || cap(b) > keptSize && n < cap(b)/4 {
		return make([]T, n)
	}
	return b[:n]
}
