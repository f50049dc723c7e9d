package model

import (
	"slices"
	"testing"
)

func TestInferBackend(t *testing.T) {
	const noBackend = "Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. " +
		"Expected model name of the form 'model.<backend_name>'."
	for _, c := range []struct {
		name, text string
		files      []string
		want       string // backend, platform and file
		err        string
	}{
		{"an ONNX file", `name: "m"`, []string{"model.onnx"}, "onnxruntime onnxruntime_onnx model.onnx", ""},
		{"a TensorRT plan", `name: "m"`, []string{"model.plan"}, "tensorrt tensorrt_plan model.plan", ""},
		{"a TorchScript file", `name: "m"`, []string{"model.pt"}, "pytorch pytorch_libtorch model.pt", ""},
		{"an exported torch program", `name: "m"`, []string{"model.pt2"}, "pytorch torch_aoti model.pt2", ""},
		{"an OpenVINO file", `name: "m"`, []string{"model.xml", "model.bin"}, "openvino  model.xml", ""},
		{"a Python file", `name: "m"`, []string{"model.py"}, "python  model.py", ""},
		{"a plan before an ONNX file", `name: "m"`, []string{"model.onnx", "model.plan"}, "tensorrt tensorrt_plan model.plan", ""},
		{"the backend tells the platform", `name: "m" backend: "onnxruntime"`, nil, "onnxruntime onnxruntime_onnx model.onnx", ""},
		{"the platform tells the backend", `name: "m" platform: "onnxruntime_onnx"`, nil, "onnxruntime onnxruntime_onnx model.onnx", ""},
		{"the platform chooses among a backend's files", `name: "m" platform: "torch_aoti"`, nil, "pytorch torch_aoti model.pt2", ""},
		{"the file's name tells both", `name: "m" default_model_filename: "model.onnx"`, nil, "onnxruntime onnxruntime_onnx model.onnx", ""},
		{"a file of one's own stays", `name: "m" backend: "onnxruntime" default_model_filename: "net.onnx"`, nil, "onnxruntime onnxruntime_onnx net.onnx", ""},
		{"the backend goes before the file", `name: "m" backend: "python"`, []string{"model.onnx"}, "python  model.py", ""},
		{"a backend that is not known", `name: "m" backend: "mine"`, []string{"model.onnx"}, "mine  ", ""},
		{"an ensemble needs no backend", `name: "m" platform: "ensemble"`, []string{"model.onnx"}, " ensemble ", ""},
		{"the end of the model's name", `name: "my.model.identity"`, nil, "identity  model.identity", ""},
		{"a file goes before the name", `name: "m.identity"`, []string{"model.onnx"}, "onnxruntime onnxruntime_onnx model.onnx", ""},
		{"nothing to tell by", `name: "m"`, []string{"weights.bin"}, "  ", noBackend},
		{"a name that ends in a dot", `name: "m."`, nil, "  ", "Invalid model name: Could not determine backend for model 'm.' " +
			"with no backend in model configuration. Expected model name of the form 'model.<backend_name>'."},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, c.text)
			err := InferBackend(cfg, func(name string) bool { return slices.Contains(c.files, name) })
			checkError(t, err, c.err)
			if got := cfg.Backend + " " + cfg.Platform + " " + cfg.DefaultModelFilename; got != c.want {
				t.Errorf("backend, platform, file: got %q, want %q", got, c.want)
			}
		})
	}
}
