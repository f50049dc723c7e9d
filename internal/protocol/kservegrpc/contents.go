package kservegrpc

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// The fields of InferTensorContents.
const (
	boolContents = iota + 1
	intContents
	int64Contents
	uintContents
	uint64Contents
	fp32Contents
	fp64Contents
	bytesContents
	contentFields
)

// contentCounts is how many elements each field of an InferTensorContents has,
// and the bytes of its bytes_contents.
type contentCounts struct {
	elements [contentFields]int
	text     int
}

// add checks an InferTensorContents on the wire and counts what is in it.
func (c *contentCounts) add(b []byte) error {
	return walkContents(b, func(field protowire.Number, width int, v []byte) error {
		switch {
		case field == bytesContents:
			c.text += len(v)
			c.elements[field]++
		case width > 0:
			if len(v)%width != 0 {
				return errWire
			}
			c.elements[field] += len(v) / width
		default:
			for len(v) > 0 {
				var err error
				if _, v, err = takeVarint(v); err != nil {
					return err
				}
				c.elements[field]++
			}
		}
		return nil
	})
}

// walkContents calls visit for each known field with its bytes: elements of
// width bytes each, or numbers of varying width when it is 0, or the one element
// of bytes_contents.
func walkContents(b []byte, visit func(field protowire.Number, width int, v []byte) error) error {
	for len(b) > 0 {
		num, typ, rest, err := nextField(b)
		if err != nil {
			return err
		}
		width, single := 0, protowire.VarintType
		switch num {
		case fp32Contents:
			width, single = 4, protowire.Fixed32Type
		case fp64Contents:
			width, single = 8, protowire.Fixed64Type
		case bytesContents:
			single = protowire.BytesType
		}
		if b, err = skipValue(num, typ, rest); err != nil {
			return err
		}
		if num >= contentFields || (typ != protowire.BytesType && typ != single) {
			continue
		}
		v := rest[:len(rest)-len(b)]
		if typ == protowire.BytesType { // packed, or bytes: without the length
			v, _, _ = takeBytes(rest)
		}
		if err := visit(num, width, v); err != nil {
			return err
		}
	}
	return nil
}

// typed turns an input's typed contents into the form that tensors have
// everywhere else, in memory of the request.
func (in *inputMessage) typed(r *infer.Request, t tensor.Type) (infer.Data, error) {
	field, err := in.field(r.Model, t)
	if err != nil || field == 0 {
		return infer.Data{}, err
	}
	size := in.counts.elements[field] * t.Size()
	if field == bytesContents {
		size = in.counts.elements[field]*4 + in.counts.text
	}
	memory, err := r.GrowWithin(size)
	if err != nil {
		return infer.Data{}, err
	}
	dst := memory[:0]
	for _, part := range in.contents {
		_ = walkContents(part, func(f protowire.Number, _ int, v []byte) error { // checked when it was counted
			if f == protowire.Number(field) {
				dst = appendContents(dst, field, t, v)
			}
			return nil
		})
	}
	return infer.Data{First: dst}, nil
}

// field returns the one field of the contents that has elements, 0 when none
// has, and an error when it is not the one for tensors of type t.
func (in *inputMessage) field(model string, t tensor.Type) (int, error) {
	found := 0
	for field := boolContents; field < contentFields; field++ {
		if in.counts.elements[field] == 0 {
			continue
		}
		if found != 0 {
			return 0, status.Errorf(status.InvalidArgument,
				"unexpected explicit tensor data for input tensor '%s' for model '%s', binary data was already supplied.", in.name, model)
		}
		if want := contentType(field, t); want != t {
			return 0, status.Errorf(status.InvalidArgument,
				"unexpected explicit tensor data for input tensor '%s' for model '%s' of type '%s', expected datatype '%s'", in.name, model, want, t)
		}
		found = field
	}
	return found, nil
}

// contentType returns the type of tensor that a field is for: t where it is for
// several and t is one of them.
func contentType(field int, t tensor.Type) tensor.Type {
	switch field {
	case boolContents:
		return tensor.Bool
	case intContents:
		if t == tensor.Int8 || t == tensor.Int16 {
			return t
		}
		return tensor.Int32
	case int64Contents:
		return tensor.Int64
	case uintContents:
		if t == tensor.Uint8 || t == tensor.Uint16 {
			return t
		}
		return tensor.Uint32
	case uint64Contents:
		return tensor.Uint64
	case fp32Contents:
		return tensor.FP32
	case fp64Contents:
		return tensor.FP64
	}
	return tensor.Bytes
}

// appendContents appends the elements in v, which were checked, to dst. Numbers
// are cut to the type's width.
func appendContents(dst []byte, field int, t tensor.Type, v []byte) []byte {
	switch field {
	case fp32Contents, fp64Contents:
		return append(dst, v...) // the wire has them as we do
	case bytesContents:
		return append(binary.LittleEndian.AppendUint32(dst, uint32(len(v))), v...)
	}
	width := t.Size()
	for len(v) > 0 {
		n, size := protowire.ConsumeVarint(v)
		v = v[size:]
		switch {
		case field == boolContents:
			dst = append(dst, 0)
			if n != 0 {
				dst[len(dst)-1] = 1
			}
		case width == 1:
			dst = append(dst, byte(n))
		case width == 2:
			dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
		case width == 4:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
		default:
			dst = binary.LittleEndian.AppendUint64(dst, n)
		}
	}
	return dst
}
