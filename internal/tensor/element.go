package tensor

import (
	"encoding/binary"
	"math"
	"strconv"
)

// AppendInteger appends the first element of p, which is of an integer type, as
// decimal text.
func AppendInteger(b []byte, t Type, p []byte) []byte {
	le := binary.LittleEndian
	switch t {
	case Uint8:
		return strconv.AppendUint(b, uint64(p[0]), 10)
	case Uint16:
		return strconv.AppendUint(b, uint64(le.Uint16(p)), 10)
	case Uint32:
		return strconv.AppendUint(b, uint64(le.Uint32(p)), 10)
	case Uint64:
		return strconv.AppendUint(b, le.Uint64(p), 10)
	case Int8:
		return strconv.AppendInt(b, int64(int8(p[0])), 10)
	case Int16:
		return strconv.AppendInt(b, int64(int16(le.Uint16(p))), 10)
	case Int32:
		return strconv.AppendInt(b, int64(int32(le.Uint32(p))), 10)
	case Int64:
		return strconv.AppendInt(b, int64(le.Uint64(p)), 10)
	}
	panic("BUG: tensor: " + t.String() + " is not an integer type")
}

// HalfToFloat widens an IEEE half-precision number.
func HalfToFloat(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent, mantissa := uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0:
		v := float32(mantissa) / (1 << 24) // subnormal, or zero
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | mantissa<<13)
}
