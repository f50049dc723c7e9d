package shapes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// A graph is a model under construction: nodes are added one after the other,
// and each returns the name of its output. Its weights are random and the same
// every time.
type graph struct {
	model onnxtest.Model
	rng   *rand.Rand
	names int
}

func newGraph() *graph { return &graph{rng: rand.New(rand.NewPCG(42, 42))} }

// name returns a name that nothing in the graph has yet.
func (g *graph) name(kind string) string {
	g.names++
	return fmt.Sprintf("%s_%d", strings.ToLower(kind), g.names)
}

// node adds a node with one output and returns the output's name.
func (g *graph) node(op string, inputs []string, attrs ...onnxtest.Attr) string {
	out := g.name(op)
	g.model.Nodes = append(g.model.Nodes, onnxtest.Node{Op: op, Inputs: inputs, Outputs: []string{out}, Attrs: attrs})
	return out
}

// weights adds a random matrix that neither grows nor shrinks the values it is
// multiplied with: the standard deviation is that of in inputs.
func (g *graph) weights(in int, dims ...int64) string {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	values := make([]float32, n)
	scale := 1 / math.Sqrt(float64(in))
	for i := range values {
		values[i] = float32(g.rng.NormFloat64() * scale)
	}
	return g.constant("w", tensor.FP32, onnxtest.Floats(values...), dims...)
}

// zeros adds a tensor of zeros.
func (g *graph) zeros(dims ...int64) string {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return g.constant("zeros", tensor.FP32, make([]byte, 4*n), dims...)
}

// ints adds a vector of int64, such as the shape that Reshape takes.
func (g *graph) ints(values ...int64) string {
	return g.constant("ints", tensor.Int64, onnxtest.Int64s(values...), int64(len(values)))
}

func (g *graph) constant(kind string, t tensor.Type, raw []byte, dims ...int64) string {
	name := g.name(kind)
	g.model.Initializers = append(g.model.Initializers, onnxtest.Initializer{Name: name, Type: t, Dims: dims, Raw: raw})
	return name
}

// dense adds a product with random weights, in columns to out columns.
func (g *graph) dense(x string, in, out int64) string {
	return g.node("MatMul", []string{x, g.weights(int(in), in, out)})
}

// finish adds the input, of the given dimensions for a row, and makes x, of
// width elements for a row, the output.
func (g *graph) finish(x string, width int, dims ...int64) []byte {
	g.model.Nodes = append(g.model.Nodes, onnxtest.NodeOf("Identity", []string{x}, peer.Output))
	in := onnxtest.Tensor{Name: peer.Input, Type: tensor.FP32, Dims: []any{"N"}}
	for _, d := range dims {
		in.Dims = append(in.Dims, d)
	}
	g.model.Inputs = []onnxtest.Tensor{in}
	g.model.Outputs = []onnxtest.Tensor{{Name: peer.Output, Type: tensor.FP32, Dims: []any{"N", width}}}
	return g.model.Marshal()
}

// model returns the model of a file with one input and one output.
func model(name string, width int, file func() []byte, dims ...int64) peer.Model {
	return peer.Model{
		Name: name, MaxBatch: 64, Instances: 1, Settings: peer.OneThread, Tensors: ports(width, dims),
		Inputs: []peer.Tensor{peer.Random(peer.Input, dims...)}, Answer: width,
		ONNX: func() ([]byte, error) { return file(), nil },
	}
}

// ports returns the lines of config.pbtxt for an input of several dimensions.
func ports(width int, dims []int64) string {
	var list []string
	for _, d := range dims {
		list = append(list, fmt.Sprint(d))
	}
	return fmt.Sprintf("input [ { name: %q data_type: TYPE_FP32 dims: [ %s ] } ]\noutput [ { name: %q data_type: TYPE_FP32 dims: [ %d ] } ]\n",
		peer.Input, strings.Join(list, ", "), peer.Output, width)
}

func attr(name string, value any) onnxtest.Attr { return onnxtest.Attr{Name: name, Value: value} }
