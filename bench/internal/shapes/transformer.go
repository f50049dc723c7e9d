package shapes

import (
	"math"
	"sync"

	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// The size of the transformer.
const (
	tokens   = 16
	width    = 128
	heads    = 4
	encoders = 2
)

var transformerFile = sync.OnceValue(transformer)

// Transformer returns a small encoder: 16 tokens of 128 elements, two layers of
// four heads.
func Transformer() peer.Model { return model("transformer", answer, transformerFile, tokens, width) }

// transformer writes the encoder, the mean over its tokens and a dense layer.
func transformer() []byte {
	g := newGraph()
	x := peer.Input
	for range encoders {
		x = g.normalize(g.node("Add", []string{x, g.attention(x)}))
		inner := g.node("Relu", []string{g.dense(x, width, 4*width)})
		x = g.normalize(g.node("Add", []string{x, g.dense(inner, 4*width, width)}))
	}
	mean := g.node("ReduceMean", []string{x}, attr("axes", []int64{1}), attr("keepdims", int64(0)))
	return g.finish(g.dense(mean, width, answer), answer, tokens, width)
}

// attention adds self-attention over the tokens of x.
func (g *graph) attention(x string) string {
	split := g.ints(0, 0, heads, width/heads)
	head := func(perm ...int64) string {
		return g.node("Transpose", []string{g.node("Reshape", []string{g.dense(x, width, width), split})}, attr("perm", perm))
	}
	q, k, v := head(0, 2, 1, 3), head(0, 2, 3, 1), head(0, 2, 1, 3)
	scale := g.constant("scale", tensor.FP32, onnxtest.Floats(float32(1/math.Sqrt(width/heads))))
	scores := g.node("Mul", []string{g.node("MatMul", []string{q, k}), scale})
	mixed := g.node("MatMul", []string{g.node("Softmax", []string{scores}, attr("axis", int64(-1))), v})
	flat := g.node("Reshape", []string{g.node("Transpose", []string{mixed}, attr("perm", []int64{0, 2, 1, 3})), g.ints(0, 0, width)})
	return g.dense(flat, width, width)
}

// normalize adds a layer normalization without a learned scale.
func (g *graph) normalize(x string) string {
	ones := make([]float32, width)
	for i := range ones {
		ones[i] = 1
	}
	scale := g.constant("ones", tensor.FP32, onnxtest.Floats(ones...), width)
	return g.node("LayerNormalization", []string{x, scale, g.zeros(width)}, attr("axis", int64(-1)))
}
