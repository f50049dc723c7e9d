// Package tensor has the data types and shapes that all other packages use. It
// knows nothing of models, requests or protocols; everything is a plain value,
// safe for concurrent use.
package tensor

// A Type is the data type of a tensor's elements. The numbers are those of the
// protocol's DataType enumeration, so that a conversion is a plain cast.
type Type uint8

// The types of the protocol.
const (
	Invalid Type = iota
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	FP32
	FP64
	Bytes
	BF16
	typeCount
)

var types = [typeCount]struct {
	name   string
	config string
	size   int
}{
	Invalid: {"<invalid>", "TYPE_INVALID", 0},
	Bool:    {"BOOL", "TYPE_BOOL", 1},
	Uint8:   {"UINT8", "TYPE_UINT8", 1},
	Uint16:  {"UINT16", "TYPE_UINT16", 2},
	Uint32:  {"UINT32", "TYPE_UINT32", 4},
	Uint64:  {"UINT64", "TYPE_UINT64", 8},
	Int8:    {"INT8", "TYPE_INT8", 1},
	Int16:   {"INT16", "TYPE_INT16", 2},
	Int32:   {"INT32", "TYPE_INT32", 4},
	Int64:   {"INT64", "TYPE_INT64", 8},
	FP16:    {"FP16", "TYPE_FP16", 2},
	FP32:    {"FP32", "TYPE_FP32", 4},
	FP64:    {"FP64", "TYPE_FP64", 8},
	Bytes:   {"BYTES", "TYPE_STRING", 0},
	BF16:    {"BF16", "TYPE_BF16", 2},
}

// String returns the name on the wire, such as "FP32".
func (t Type) String() string {
	if t >= typeCount {
		return types[Invalid].name
	}
	return types[t].name
}

// ConfigName returns the name in a model configuration, such as "TYPE_FP32".
func (t Type) ConfigName() string {
	if t >= typeCount {
		return types[Invalid].config
	}
	return types[t].config
}

// Size returns the bytes of one element, 0 for Bytes (whose elements vary) and
// for Invalid.
func (t Type) Size() int {
	if t >= typeCount {
		return 0
	}
	return types[t].size
}

// ParseType returns the type with that name on the wire. Names are matched
// exactly; Invalid has none.
func ParseType(name string) (Type, bool) {
	for t := Bool; t < typeCount; t++ {
		if types[t].name == name {
			return t, true
		}
	}
	return Invalid, false
}
