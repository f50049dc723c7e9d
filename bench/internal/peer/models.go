package peer

import (
	"fmt"
	"os"
	"path/filepath"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// Names that the identity models have on both servers.
const (
	Input  = "INPUT0"
	Output = "OUTPUT0"
)

// A Model is an identity model to serve: FP32 in, the same out.
type Model struct {
	Name  string
	Width int // elements of one row
}

// The models of the benchmarks: 64 bytes, and 602,112 bytes as of an image.
var (
	Small = Model{Name: "identity", Width: 16}
	Big   = Model{Name: "identity_big", Width: 150_528}
)

// config returns the part of config.pbtxt that both servers read.
func (m Model) config() string {
	return fmt.Sprintf(`max_batch_size: 8
input [ { name: %q data_type: TYPE_FP32 dims: [ %d ] } ]
output [ { name: %q data_type: TYPE_FP32 dims: [ %d ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
`, Input, m.Width, Output, m.Width)
}

// onnx returns the model as an ONNX file.
func (m Model) onnx() []byte {
	dims := []any{"N", m.Width}
	return onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: Input, Type: tensor.FP32, Dims: dims}},
		Outputs: []onnxtest.Tensor{{Name: Output, Type: tensor.FP32, Dims: dims}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("Identity", []string{Input}, Output)},
	}.Marshal()
}

const pythonIdentity = `import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb.InferenceResponse([pb.Tensor("` + Output + `", pb.get_input_tensor_by_name(r, "` + Input + `").as_numpy())])
            for r in requests
        ]
`

// writeRepository makes dir anew as a repository of the models.
func writeRepository(dir, backend, file string, content func(Model) []byte, models []Model) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, m := range models {
		version := filepath.Join(dir, m.Name, "1")
		if err := os.MkdirAll(version, 0o755); err != nil {
			return err
		}
		config := fmt.Sprintf("backend: %q\n%s", backend, m.config())
		if err := os.WriteFile(filepath.Join(dir, m.Name, "config.pbtxt"), []byte(config), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(version, file), content(m), 0o644); err != nil {
			return err
		}
	}
	return nil
}
