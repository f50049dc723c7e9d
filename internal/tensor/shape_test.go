package tensor

import (
	"math"
	"testing"
)

func TestElementsAndBytesOfAShape(t *testing.T) {
	const none = -1
	tests := []struct {
		name            string
		shape           Shape
		typ             Type
		elements, bytes int64
	}{
		{"no dimensions are one element", Shape{}, FP32, 1, 4},
		{"dimensions multiply", Shape{2, 3, 5}, Int64, 30, 240},
		{"a zero empties it", Shape{math.MaxInt64, 0}, FP32, 0, 0},
		{"a zero does not excuse the others", Shape{math.MaxInt64, 4, 0}, FP32, none, none},
		{"a variable dimension has no count", Shape{2, -1}, FP32, none, none},
		{"a negative one after a zero has none either", Shape{0, -1}, FP32, none, none},
		{"a product beyond 64 bits", Shape{math.MaxInt64, 3}, Uint8, none, none},
		{"a product that wraps to a small number", Shape{1 << 32, 1 << 32}, Uint8, none, none},
		{"elements that count and bytes that do not", Shape{math.MaxInt64}, Uint16, math.MaxInt64, none},
		{"strings vary in size", Shape{2}, Bytes, 2, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			elements, ok := tt.shape.Elements()
			if want := max(tt.elements, 0); elements != want || ok != (tt.elements != none) {
				t.Errorf("%v: got %d elements, %v, want %d", tt.shape, elements, ok, tt.elements)
			}
			bytes, ok := tt.shape.Bytes(tt.typ)
			if want := max(tt.bytes, 0); bytes != want || ok != (tt.bytes != none) {
				t.Errorf("%v of %v: got %d bytes, %v, want %d", tt.shape, tt.typ, bytes, ok, tt.bytes)
			}
		})
	}
}

func TestAcceptsTakesAnySizeForAVariableDimension(t *testing.T) {
	tests := []struct {
		s, o Shape
		want bool
	}{
		{Shape{-1, 4}, Shape{7, 4}, true},
		{Shape{-1, 4}, Shape{0, 4}, true},
		{Shape{-1, 4}, Shape{7, 5}, false},
		{Shape{-1, 4}, Shape{7, 4, 1}, false},
		{Shape{}, Shape{}, true},
	}
	for _, tt := range tests {
		if got := tt.s.Accepts(tt.o); got != tt.want {
			t.Errorf("%v accepts %v: got %v, want %v", tt.s, tt.o, got, tt.want)
		}
	}
}

func TestSubstitutePutsSizesForVariableDimensions(t *testing.T) {
	tests := []struct {
		name                       string
		pattern, from, shape, want Shape
	}{
		{"a fixed pattern stays", Shape{4, 4}, Shape{16}, Shape{16}, Shape{4, 4}},
		{"a variable one moves to another place", Shape{1, -1}, Shape{-1, 3}, Shape{7, 3}, Shape{1, 7}},
		{"several go in order", Shape{-1, 2, -1}, Shape{-1, -1}, Shape{5, 6}, Shape{5, 2, 6}},
		{"one without a partner is 1", Shape{-1, -1}, Shape{-1}, Shape{5}, Shape{5, 1}},
		{"a shape that is shorter than said", Shape{-1}, Shape{3, -1}, Shape{3}, Shape{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := append(Shape{9}, tt.want...) // what was in dst stays
			if got := Substitute(Shape{9}, tt.pattern, tt.from, tt.shape); !got.Equal(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestEveryTypeHasNamesThatAreItsOwn(t *testing.T) {
	for typ := Bool; typ < typeCount; typ++ {
		if got, ok := ParseType(typ.String()); !ok || got != typ {
			t.Errorf("%v: got %v, %v from its own name", typ, got, ok)
		}
	}
	for _, name := range []string{"", "fp32", "<invalid>", "TYPE_FP32"} {
		if got, ok := ParseType(name); ok || got != Invalid {
			t.Errorf("ParseType(%q): got %v, %v, want none", name, got, ok)
		}
	}
	if beyond := typeCount + 1; beyond.Size() != 0 || beyond.String() != Invalid.String() || beyond.ConfigName() != Invalid.ConfigName() {
		t.Errorf("a number that is no type: got %v, %v, %d, want it invalid", beyond, beyond.ConfigName(), beyond.Size())
	}
}
