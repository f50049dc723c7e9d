package ask

import (
	"fmt"
	"os"
	"path/filepath"

	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// A Model is a model whose answers can be foretold: OUTPUT0 has the elements of
// INPUT0, each with Add added. One that is Decoupled counts down from INPUT0.
type Model struct {
	Name      string
	Width     int     // FP32 elements of a row
	Add       float32 // what the model adds to each
	Decoupled bool

	config string
	file   string // in the version's folder; empty when the backend needs none
	code   func() []byte
}

// MaxBatch is the most rows of a batch of every model here.
const MaxBatch = 8

// Identity returns a model of the built-in identity backend.
func Identity(name string, width int) Model {
	return Model{Name: name, Width: width, config: config("identity", width, "")}
}

// ONNX returns a model that ONNX Runtime runs; settings are further lines of
// config.pbtxt.
func ONNX(name string, width int, settings string) Model {
	return Model{
		Name: name, Width: width, Add: 1, config: config("onnxruntime", width, settings), file: "model.onnx",
		code: func() []byte {
			dims := []any{"N", width}
			return onnxtest.Model{
				Inputs:       []onnxtest.Tensor{{Name: peer.Input, Type: tensor.FP32, Dims: dims}},
				Outputs:      []onnxtest.Tensor{{Name: peer.Output, Type: tensor.FP32, Dims: dims}},
				Initializers: []onnxtest.Initializer{{Name: "one", Type: tensor.FP32, Dims: []int64{1}, Raw: onnxtest.Floats(1)}},
				Nodes:        []onnxtest.Node{onnxtest.NodeOf("Add", []string{peer.Input, "one"}, peer.Output)},
			}.Marshal()
		},
	}
}

// Python returns a model that Python workers run; settings are further lines of
// config.pbtxt, of which [Sleep] makes a batch take longer.
func Python(name string, width int, settings string) Model {
	return Model{
		Name: name, Width: width, Add: 2, config: config("python", width, settings), file: "model.py",
		code: func() []byte { return []byte(plusTwo) },
	}
}

const plusTwo = `import json
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"]).get("parameters", {})
        self.sleep = float(parameters.get("sleep_ms", {"string_value": "0"})["string_value"]) / 1000

    def execute(self, requests):
        time.sleep(self.sleep)
        return [
            pb.InferenceResponse([pb.Tensor("OUTPUT0", pb.get_input_tensor_by_name(r, "INPUT0").as_numpy() + 2)])
            for r in requests
        ]
`

// Countdown returns a decoupled Python model that answers INPUT0 times, with the
// numbers INPUT0 - 1 down to 0.
func Countdown(name, settings string) Model {
	return Model{
		Name: name, Width: 1, Decoupled: true, file: "model.py",
		config: "backend: \"python\"\nmodel_transaction_policy { decoupled: true }\n" + peer.Ports(peer.Input, 1, peer.Output, 1) + settings,
		code:   func() []byte { return []byte(countdown) },
	}
}

const countdown = `import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            for left in reversed(range(int(pb.get_input_tensor_by_name(r, "INPUT0").as_numpy()[0]))):
                sender.send(pb.InferenceResponse([pb.Tensor("OUTPUT0", np.array([left], np.float32))]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

// Square returns a decoupled model of the built-in backend square: it answers a
// request as many times as its input IN says.
func Square(name string) Model {
	return Model{
		Name: name, Width: 1, Decoupled: true,
		config: `backend: "square"
model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
`,
	}
}

// Instances returns the lines of config.pbtxt for so many instances.
func Instances(n int) string {
	return fmt.Sprintf("instance_group [ { count: %d kind: KIND_CPU } ]\n", n)
}

// Sleep returns the lines of config.pbtxt that have a Python model sleep for so
// many milliseconds in each batch.
func Sleep(ms int) string {
	return fmt.Sprintf("parameters { key: \"sleep_ms\" value: { string_value: \"%d\" } }\n", ms)
}

func config(backend string, width int, settings string) string {
	return fmt.Sprintf("backend: %q\nmax_batch_size: %d\n%s%s", backend, MaxBatch, peer.Ports(peer.Input, width, peer.Output, width), settings)
}

// Write makes dir anew as a repository of the models.
func Write(dir string, models ...Model) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, m := range models {
		version := filepath.Join(dir, m.Name, "1")
		if err := os.MkdirAll(version, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, m.Name, "config.pbtxt"), []byte(m.config), 0o644); err != nil {
			return err
		}
		if m.file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(version, m.file), m.code(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
