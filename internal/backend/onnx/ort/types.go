package ort

import "shoal/internal/tensor"

// elements maps the library's element types to ours; the index is the library's
// number. Types that no protocol has are Invalid.
var elements = [...]tensor.Type{
	1:  tensor.FP32,
	2:  tensor.Uint8,
	3:  tensor.Int8,
	4:  tensor.Uint16,
	5:  tensor.Int16,
	6:  tensor.Int32,
	7:  tensor.Int64,
	8:  tensor.Bytes,
	9:  tensor.Bool,
	10: tensor.FP16,
	11: tensor.FP64,
	12: tensor.Uint32,
	13: tensor.Uint64,
	16: tensor.BF16,
}

// typeOf returns our type for one of the library's, Invalid when there is none.
func typeOf(element uint32) tensor.Type {
	if int(element) >= len(elements) {
		return tensor.Invalid
	}
	return elements[element]
}

// elementOf returns the library's number for a type, 0 when it has none.
func elementOf(t tensor.Type) uintptr {
	for n, e := range elements {
		if e == t && t != tensor.Invalid {
			return uintptr(n)
		}
	}
	return 0
}

// kinds are the names of the library's kinds of values.
var kinds = [...]string{
	0: "ONNX_TYPE_UNKNOWN",
	1: "ONNX_TYPE_TENSOR",
	2: "ONNX_TYPE_SEQUENCE",
	3: "ONNX_TYPE_MAP",
	4: "ONNX_TYPE_OPAQUE",
	5: "ONNX_TYPE_SPARSETENSOR",
	6: "ONNX_TYPE_OPTIONAL",
}

func kindName(kind uint32) string {
	if int(kind) >= len(kinds) {
		return kinds[0]
	}
	return kinds[kind]
}
