package tensor

import (
	"math"
	"math/bits"
	"strconv"
)

// A Shape is a tensor's dimensions. In a model's description -1 stands for a
// dimension of any size.
type Shape []int64

// Elements returns the number of elements, 1 for a shape without dimensions. It
// returns false when a dimension is negative or the product of the non-zero
// dimensions does not fit an int64.
func (s Shape) Elements() (int64, bool) {
	n := uint64(1)
	zero := false
	for _, d := range s {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, false
		}
		n = lo
	}
	if zero {
		return 0, true
	}
	return int64(n), true
}

// Bytes returns the bytes of a tensor of this shape and type. It returns false
// on overflow and for types without a fixed size.
func (s Shape) Bytes(t Type) (int64, bool) {
	n, ok := s.Elements()
	size := int64(t.Size())
	if !ok || size == 0 || n > math.MaxInt64/size {
		return 0, false
	}
	return n * size, true
}

// Equal reports whether both shapes have the same dimensions.
func (s Shape) Equal(o Shape) bool {
	if len(s) != len(o) {
		return false
	}
	for i, d := range s {
		if d != o[i] {
			return false
		}
	}
	return true
}

// Accepts reports whether a tensor of shape o fits s, where -1 in s matches
// any size.
func (s Shape) Accepts(o Shape) bool {
	if len(s) != len(o) {
		return false
	}
	for i, d := range s {
		if d != -1 && d != o[i] {
			return false
		}
	}
	return true
}

// Fixed reports whether no dimension is variable.
func (s Shape) Fixed() bool {
	for _, d := range s {
		if d < 0 {
			return false
		}
	}
	return true
}

// Append appends the shape's text to b.
func (s Shape) Append(b []byte) []byte {
	b = append(b, '[')
	for i, d := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return append(b, ']')
}

// String returns the shape as "[1,16]".
func (s Shape) String() string { return string(s.Append(nil)) }

// Substitute appends pattern to dst and replaces its variable dimensions by the
// sizes that shape has in the variable dimensions of from, in order.
func Substitute(dst, pattern, from, shape Shape) Shape {
	next := 0
	for _, d := range pattern {
		if d == -1 {
			for next < len(from) && from[next] != -1 {
				next++
			}
			d = 1 // the configuration pairs no dimension with this one
			if next < len(from) && next < len(shape) {
				d = shape[next]
			}
			next++
		}
		dst = append(dst, d)
	}
	return dst
}
