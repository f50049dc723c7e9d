package peer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// The layers of the MLP: 3.4 million weights. One row is a product of a matrix
// and a vector, which takes as long as reading the weights does; a batch reads
// them once.
var mlpWidths = []int{256, 1024, 1024, 1024, 1024, 16}

// OneThread are lines of config.pbtxt that keep an instance on one core, so that
// what batching gains is not mixed with what more threads gain.
const OneThread = "parameters [ { key: \"intra_op_thread_count\" value: { string_value: \"1\" } } ]\n"

// MLP returns a multilayer perceptron, 256 to 4 x 1024 to 16, that runs on one
// thread. Triton's package has no backend for it.
func MLP() Model { return Dense("mlp", mlpWidths...) }

// Dense returns a multilayer perceptron with layers of these widths, the input's
// first, that runs on one thread. Its weights are random and the same every time.
func Dense(name string, widths ...int) Model {
	in, out := widths[0], widths[len(widths)-1]
	file := sync.OnceValue(func() []byte { return mlp(widths) })
	return Model{
		Name: name, MaxBatch: 64, Instances: 1, Tensors: Ports(Input, in, Output, out), Settings: OneThread,
		Inputs: []Tensor{Random(Input, int64(in))}, Answer: out,
		ONNX: func() ([]byte, error) { return file(), nil },
	}
}

// mlp writes a model of dense layers with a ReLU between them.
func mlp(widths []int) []byte {
	m := onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: Input, Type: tensor.FP32, Dims: []any{"N", widths[0]}}},
		Outputs: []onnxtest.Tensor{{Name: Output, Type: tensor.FP32, Dims: []any{"N", widths[len(widths)-1]}}},
	}
	rng := rand.New(rand.NewPCG(42, 42))
	last := len(widths) - 2
	x := Input
	for i := 0; i <= last; i++ {
		in, out := widths[i], widths[i+1]
		w, b, y := fmt.Sprintf("w%d", i), fmt.Sprintf("b%d", i), fmt.Sprintf("x%d", i+1)
		if i == last {
			y = Output
		}
		m.Initializers = append(m.Initializers,
			onnxtest.Initializer{Name: w, Type: tensor.FP32, Dims: []int64{int64(in), int64(out)}, Raw: weights(rng, in, out)},
			onnxtest.Initializer{Name: b, Type: tensor.FP32, Dims: []int64{int64(out)}, Raw: make([]byte, 4*out)})
		if i == last {
			m.Nodes = append(m.Nodes, onnxtest.NodeOf("Gemm", []string{x, w, b}, y))
			break
		}
		m.Nodes = append(m.Nodes, onnxtest.NodeOf("Gemm", []string{x, w, b}, y+"_dense"), onnxtest.NodeOf("Relu", []string{y + "_dense"}, y))
		x = y
	}
	return m.Marshal()
}

// weights returns a layer's weights, scaled so that values neither grow nor
// vanish from layer to layer: denormal numbers would be slow.
func weights(rng *rand.Rand, in, out int) []byte {
	scale := math.Sqrt(2 / float64(in))
	values := make([]float32, in*out)
	for i := range values {
		values[i] = float32(rng.NormFloat64() * scale)
	}
	return onnxtest.Floats(values...)
}
