package onnx

import (
	"encoding/binary"
	"math"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A batchInput is an input of the graph that no client sends: the instance
// computes it from the shapes that a batch's requests have in one of their
// inputs, the source. With it, a model can find each request's part in a
// concatenated ragged input.
type batchInput struct {
	name   string
	kind   modelpb.BatchInput_Kind
	typ    tensor.Type // INT32 or FP32
	source int         // the source's place among the model's inputs
}

// batchInputs returns the batch inputs of a configuration that CheckGraph has
// passed, one for each target.
func batchInputs(cfg *modelpb.ModelConfig, sig *model.Signature) []batchInput {
	var list []batchInput
	for _, b := range cfg.GetBatchInput() {
		for _, name := range b.GetTargetName() {
			list = append(list, batchInput{name: name, kind: b.GetKind(), typ: tensor.Type(b.GetDataType()), source: sig.Input(b.GetSourceInput()[0])})
		}
	}
	return list
}

// shape appends the tensor's shape for a batch of so many rows to dst; x is the
// source's port. There is a count per request and an item shape per row.
func (b *batchInput) shape(dst tensor.Shape, x *port, requests []*infer.Request, rows int) tensor.Shape {
	n, rank := int64(len(requests)), int64(len(x.inner))
	switch b.kind {
	case modelpb.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
		return append(dst, n+1)
	case modelpb.BatchInput_BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
		most := int64(0)
		for _, r := range requests {
			most = max(most, elementsOf(r, b.source))
		}
		return append(dst, most)
	case modelpb.BatchInput_BATCH_ITEM_SHAPE:
		return append(dst, int64(rows), rank)
	case modelpb.BatchInput_BATCH_ITEM_SHAPE_FLATTEN:
		return append(dst, int64(rows)*rank)
	}
	return append(dst, n)
}

// fill appends the tensor's content to dst. For the largest element count only
// the shape matters; its content is zero.
func (b *batchInput) fill(dst []byte, x *port, requests []*infer.Request) ([]byte, error) {
	var sum int64
	if b.kind == modelpb.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO {
		dst = b.put(dst, 0)
	}
	for _, r := range requests {
		n := elementsOf(r, b.source)
		sum += n
		switch b.kind {
		case modelpb.BatchInput_BATCH_ELEMENT_COUNT:
			dst = b.put(dst, n)
		case modelpb.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT, modelpb.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
			dst = b.put(dst, sum)
		case modelpb.BatchInput_BATCH_ITEM_SHAPE, modelpb.BatchInput_BATCH_ITEM_SHAPE_FLATTEN:
			dst = b.putItems(dst, x, r)
		}
	}
	if sum > math.MaxInt32 && b.typ == tensor.Int32 {
		return dst, status.Errorf(status.Internal, "batch input '%s': the batch has %d elements of input '%s', more than INT32 can count", b.name, sum, x.Name)
	}
	return dst, nil
}

// putItems appends the shape of each row of a request, without the batch
// dimension. Without such a dimension the whole tensor is one row.
func (b *batchInput) putItems(dst []byte, x *port, r *infer.Request) []byte {
	var room [8]int64 // on the stack for usual ranks
	shape := x.graphShape(room[:0], inputOf(r, b.source).Shape, r.Rows)
	if x.batched {
		shape = shape[1:]
	}
	for range r.Rows {
		for _, d := range shape {
			dst = b.put(dst, d)
		}
	}
	return dst
}

func (b *batchInput) put(dst []byte, v int64) []byte {
	if b.typ == tensor.FP32 {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v)))
	}
	return binary.LittleEndian.AppendUint32(dst, uint32(v))
}

// inputOf returns a request's input by its index among the model's inputs, nil
// when it was left out. Inputs before it may be missing, so its position in the
// request is at most index.
func inputOf(r *infer.Request, index int) *infer.Input {
	for i := min(index, len(r.Inputs)-1); i >= 0; i-- {
		if r.Inputs[i].Index == index {
			return &r.Inputs[i]
		}
	}
	return nil
}

// elementsOf returns the number of elements of an input of a checked request.
func elementsOf(r *infer.Request, index int) int64 {
	n, _ := inputOf(r, index).Shape.Elements()
	return n
}
