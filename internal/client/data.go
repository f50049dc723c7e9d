package client

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"shoal/internal/tensor"
)

// AppendString appends a string in the encoding of BYTES tensors.
func AppendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// Strings returns the strings of a BYTES tensor.
func Strings(data []byte) ([]string, error) {
	var list []string
	for len(data) > 0 {
		if len(data) < 4 {
			return nil, errors.New("the length of a string is cut short")
		}
		n := binary.LittleEndian.Uint32(data)
		if data = data[4:]; uint64(n) > uint64(len(data)) {
			return nil, fmt.Errorf("a string of %d bytes is cut short after %d", n, len(data))
		}
		list = append(list, string(data[:n]))
		data = data[n:]
	}
	return list, nil
}

// AppendJSON appends a tensor's values as a flat JSON list. JSON has no
// infinities and no NaN: they are written as the words that Triton reads, NaN
// and Infinity.
func AppendJSON(b []byte, t tensor.Type, data []byte) ([]byte, error) {
	if t == tensor.Bytes {
		list, err := Strings(data)
		if err != nil {
			return nil, err
		}
		text, err := marshal(append([]string{}, list...))
		return append(b, text...), err
	}
	size := t.Size()
	if size == 0 || len(data)%size != 0 {
		return nil, fmt.Errorf("%d bytes are not a whole number of %s", len(data), t)
	}
	b = append(b, '[')
	for i := 0; i < len(data); i += size {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendElement(b, t, data[i:])
	}
	return append(b, ']'), nil
}

func appendElement(b []byte, t tensor.Type, v []byte) []byte {
	le := binary.LittleEndian
	switch t {
	case tensor.Bool:
		return strconv.AppendBool(b, v[0] != 0)
	case tensor.FP16:
		return appendFloat(b, float64(tensor.HalfToFloat(le.Uint16(v))), 32)
	case tensor.BF16:
		return appendFloat(b, float64(math.Float32frombits(uint32(le.Uint16(v))<<16)), 32)
	case tensor.FP32:
		return appendFloat(b, float64(math.Float32frombits(le.Uint32(v))), 32)
	case tensor.FP64:
		return appendFloat(b, math.Float64frombits(le.Uint64(v)), 64)
	}
	return tensor.AppendInteger(b, t, v)
}

func appendFloat(b []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, bits)
}

// AppendElement appends a JSON number, boolean or string as an element of type
// t. Floats accept whole numbers; integers do not accept fractions.
func AppendElement(b []byte, t tensor.Type, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		if t != tensor.Bytes {
			break
		}
		return AppendString(b, v), nil
	case bool:
		if t != tensor.Bool {
			break
		}
		return append(b, truth(v)), nil
	case json.Number:
		return appendNumber(b, t, v)
	}
	return nil, fmt.Errorf("%v is not a value of type %s", v, t)
}

func truth(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func appendNumber(b []byte, t tensor.Type, v json.Number) ([]byte, error) {
	le := binary.LittleEndian
	switch t {
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("%s is out of the range of %s", v, t)
		}
		switch t {
		case tensor.FP16:
			return le.AppendUint16(b, floatToHalf(float32(f))), nil
		case tensor.BF16:
			return le.AppendUint16(b, floatToBrain(float32(f))), nil
		case tensor.FP32:
			return le.AppendUint32(b, math.Float32bits(float32(f))), nil
		}
		return le.AppendUint64(b, math.Float64bits(f)), nil
	case tensor.Bool, tensor.Bytes:
		return nil, fmt.Errorf("%s is not a value of type %s", v, t)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		n, err := strconv.ParseUint(v.String(), 10, 8*t.Size())
		if err != nil {
			return nil, fmt.Errorf("%s is not a %s", v, t)
		}
		return appendInteger(b, t.Size(), n), nil
	}
	n, err := strconv.ParseInt(v.String(), 10, 8*t.Size())
	if err != nil {
		return nil, fmt.Errorf("%s is not an %s", v, t)
	}
	return appendInteger(b, t.Size(), uint64(n)), nil
}

// appendInteger appends the low size bytes of n.
func appendInteger(b []byte, size int, n uint64) []byte {
	for i := range size {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

// floatToBrain rounds to bfloat16, to the nearest even.
func floatToBrain(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16) | 0x40 // keep it a NaN
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// floatToHalf rounds to half precision, to the nearest even.
func floatToHalf(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	magnitude := bits & 0x7fffffff
	switch {
	case magnitude > 0x7f800000:
		return sign | 0x7e00
	case magnitude >= 0x477ff000: // rounds to beyond 65504
		return sign | 0x7c00
	case magnitude < 0x38800000: // below the smallest normal number
		v := math.Float32frombits(magnitude) * (1 << 24)
		return sign | uint16(math.RoundToEven(float64(v)))
	}
	rounded := magnitude + 0xfff + magnitude>>13&1
	return sign | uint16((rounded-(112<<23))>>13)
}
