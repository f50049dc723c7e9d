package peer

import (
	"fmt"
	"math/rand/v2"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// Names of the tensors of the models made here.
const (
	Input  = "INPUT0"
	Output = "OUTPUT0"
)

// A Model is a model to serve, and the request that is sent to it. One that has
// no Python is served by Shoal alone.
type Model struct {
	Name      string
	MaxBatch  int
	Instances int
	Tensors   string                 // input and output, as config.pbtxt has them
	Settings  string                 // further lines of config.pbtxt
	ONNX      func() ([]byte, error) // the file that Shoal runs
	Python    string                 // the code that a Python backend runs
	Inputs    []Tensor               // of one row
	Answer    int                    // FP32 elements of the output of one row
}

// The identity models of the benchmarks: 64 bytes, and 602,112 bytes as of an
// image.
var (
	Small = Identity("identity", 16)
	Big   = Identity("identity_big", 150_528)
)

// As returns the model under another name with other instances and further
// lines of config.pbtxt.
func (m Model) As(name string, instances int, settings string) Model {
	m.Name, m.Instances = name, instances
	m.Settings += settings
	return m
}

// Config returns the model's config.pbtxt for a backend.
func (m Model) Config(backend string) string {
	return fmt.Sprintf("backend: %q\nmax_batch_size: %d\n%sinstance_group [ { count: %d kind: KIND_CPU } ]\n%s",
		backend, m.MaxBatch, m.Tensors, m.Instances, m.Settings)
}

// Identity returns a model on both servers that gives back the FP32 elements it
// gets, width of them.
func Identity(name string, width int) Model {
	dims := []any{"N", width}
	return Model{
		Name: name, MaxBatch: 8, Instances: 1, Tensors: Ports(Input, width, Output, width), Python: pythonIdentity,
		Inputs: []Tensor{Random(Input, int64(width))}, Answer: width,
		ONNX: func() ([]byte, error) {
			return onnxtest.Model{
				Inputs:  []onnxtest.Tensor{{Name: Input, Type: tensor.FP32, Dims: dims}},
				Outputs: []onnxtest.Tensor{{Name: Output, Type: tensor.FP32, Dims: dims}},
				Nodes:   []onnxtest.Node{onnxtest.NodeOf("Identity", []string{Input}, Output)},
			}.Marshal(), nil
		},
	}
}

const pythonIdentity = `import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb.InferenceResponse([pb.Tensor("` + Output + `", pb.get_input_tensor_by_name(r, "` + Input + `").as_numpy())])
            for r in requests
        ]
`

// Ports returns the lines of config.pbtxt for one FP32 input and output of so many
// elements.
func Ports(input string, in int, output string, out int) string {
	return fmt.Sprintf("input [ { name: %q data_type: TYPE_FP32 dims: [ %d ] } ]\noutput [ { name: %q data_type: TYPE_FP32 dims: [ %d ] } ]\n",
		input, in, output, out)
}

// Random returns a tensor of one row with the given shape: numbers between 0 and
// 1 with as many digits as a float32 has, the same ones every time.
func Random(name string, shape ...int64) Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	rng := rand.New(rand.NewPCG(7, 7))
	data := make([]float32, n)
	for i := range data {
		data[i] = rng.Float32()
	}
	return Tensor{Name: name, Shape: append([]int64{1}, shape...), Data: data}
}
