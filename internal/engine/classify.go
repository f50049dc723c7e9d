package engine

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// maxClassified bounds the elements that are sorted for a client.
const maxClassified = 1_000_000

// checkClasses refuses classification of outputs that cannot be ordered, before
// the model runs in vain.
func checkClasses(sig *model.Signature, r *infer.Request) error {
	for i := range r.Outputs {
		w := &r.Outputs[i]
		if w.Classes <= 0 {
			continue
		}
		switch t := sig.Outputs[sig.Output(w.Name)].Type; t {
		case tensor.FP16, tensor.BF16, tensor.Bool, tensor.Bytes:
			return status.Errorf(status.InvalidArgument, "class result not available for output due to unsupported type '%s'", t)
		}
	}
	return nil
}

// classify replaces an output by the strings of its k largest values.
func classify(sig *model.Signature, out *infer.Output, k int64) error {
	items, n := int64(1), int64(0)
	elements, ok := out.Shape.Elements()
	if !ok || elements > maxClassified {
		return status.Errorf(status.InvalidArgument, "classification output tensor too large")
	}
	n = elements
	if sig.MaxBatch > 0 && len(out.Shape) > 0 && out.Shape[0] > 0 {
		items, n = out.Shape[0], elements/out.Shape[0]
	}
	k = min(k, n)
	labels := sig.Outputs[out.Index].Labels
	var text []byte
	for item := range items {
		text = appendClasses(text, out, item*n, n, k, labels)
	}
	out.Type, out.Data = tensor.Bytes, text
	out.Shape = out.Shape[:0]
	if sig.MaxBatch > 0 {
		out.Shape = append(out.Shape, items)
	}
	out.Shape = append(out.Shape, k)
	return nil
}

// appendClasses appends the k largest of the n elements from first on, each as
// "value:index[:label]" after its length.
func appendClasses(b []byte, out *infer.Output, first, n, k int64, labels []string) []byte {
	type class struct {
		value float64 // sort key; raw distinguishes integers beyond 2^53
		raw   uint64
		index int64
	}
	classes := make([]class, n)
	for i := range n {
		value, raw := element(out, first+i)
		classes[i] = class{value, raw, i}
	}
	slices.SortStableFunc(classes, func(x, y class) int {
		if c := cmp.Compare(y.value, x.value); c != 0 {
			return c
		}
		if out.Type == tensor.Int64 {
			return cmp.Compare(int64(y.raw), int64(x.raw))
		}
		return cmp.Compare(y.raw, x.raw)
	})
	for _, c := range classes[:k] {
		start := len(b)
		b = append(b, 0, 0, 0, 0)
		b = appendValue(b, out.Type, c.value, c.raw)
		b = append(b, ':')
		b = strconv.AppendInt(b, c.index, 10)
		if c.index < int64(len(labels)) && labels[c.index] != "" {
			b = append(b, ':')
			b = append(b, labels[c.index]...)
		}
		binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	}
	return b
}

// element returns element i as a number to sort by and as its bits.
func element(out *infer.Output, i int64) (float64, uint64) {
	size := int64(out.Type.Size())
	p := out.Data[i*size : (i+1)*size]
	switch out.Type {
	case tensor.Uint8:
		return float64(p[0]), 0
	case tensor.Int8:
		return float64(int8(p[0])), 0
	case tensor.Uint16:
		return float64(binary.LittleEndian.Uint16(p)), 0
	case tensor.Int16:
		return float64(int16(binary.LittleEndian.Uint16(p))), 0
	case tensor.Uint32:
		return float64(binary.LittleEndian.Uint32(p)), 0
	case tensor.Int32:
		return float64(int32(binary.LittleEndian.Uint32(p))), 0
	case tensor.Uint64:
		u := binary.LittleEndian.Uint64(p)
		return float64(u), u
	case tensor.Int64:
		u := binary.LittleEndian.Uint64(p)
		return float64(int64(u)), u
	case tensor.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p))), 0
	case tensor.FP64:
		return math.Float64frombits(binary.LittleEndian.Uint64(p)), 0
	}
	panic("BUG: engine: classification of " + out.Type.String())
}

func appendValue(b []byte, t tensor.Type, value float64, raw uint64) []byte {
	switch t {
	case tensor.FP32, tensor.FP64:
		return strconv.AppendFloat(b, value, 'f', 6, 64)
	case tensor.Uint64:
		return strconv.AppendUint(b, raw, 10)
	case tensor.Int64:
		return strconv.AppendInt(b, int64(raw), 10)
	}
	return strconv.AppendInt(b, int64(value), 10)
}
