package kservehttp

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

const (
	onnxModel  = `platform: "onnxruntime_onnx" backend: "onnxruntime" default_model_filename: "model.onnx" `
	oneThread  = `parameters { key: "intra_op_thread_count" value { string_value: "1" } } parameters { key: "inter_op_thread_count" value { string_value: "1" } } `
	oneOnCPU   = `instance_group { count: 1 kind: KIND_CPU } `
	twoByTwoFP = `input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } input { name: "INPUT1" data_type: TYPE_FP32 dims: 16 }
		output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 } output { name: "OUTPUT1" data_type: TYPE_FP32 dims: 16 } `
	twoByTwoInt = `input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 } input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }
		output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 } output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 } `
)

// recordedModels are those of the server that the recorded answers come from.
var recordedModels = map[string]string{
	"simple":       onnxModel + oneThread + oneOnCPU + twoByTwoInt + `max_batch_size: 8`,
	"add_sub":      onnxModel + oneThread + oneOnCPU + twoByTwoFP + `max_batch_size: 64`,
	"auto_add_sub": onnxModel + twoByTwoFP + `max_batch_size: 4 dynamic_batching {}`,
	"mlp_dyn": onnxModel + oneThread + oneOnCPU + `max_batch_size: 64 dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 100 }
		input { name: "INPUT" data_type: TYPE_FP32 dims: 256 } output { name: "OUTPUT" data_type: TYPE_FP32 dims: 16 }`,
	"py_identity":  `backend: "python" default_model_filename: "model.py" max_batch_size: 64 ` + oneOnCPU + oneInput("TYPE_FP32", "16"),
	"str_identity": onnxModel + oneThread + oneOnCPU + `max_batch_size: 8 ` + oneInput("TYPE_STRING", "-1"),
}

// oddModels are for what the recorded ones have no model for.
var oddModels = map[string]string{
	"fast": `backend: "onnxruntime" max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
		output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 label_filename: "labels.txt" }`,
	"identity":  `backend: "identity" ` + oneInput("TYPE_FP32", "-1"),
	"text":      `backend: "onnxruntime" max_batch_size: 8 ` + oneInput("TYPE_STRING", "1"),
	"half":      `backend: "onnxruntime" ` + oneInput("TYPE_FP16", "-1"),
	"grid":      `backend: "onnxruntime" ` + oneInput("TYPE_FP32", "-1, -1"),
	"decoupled": `backend: "onnxruntime" model_transaction_policy { decoupled: true } ` + oneInput("TYPE_FP32", "-1"),
	"var":       `backend: "onnxruntime" ` + oneInput("TYPE_FP32", "-1"),
}

func oneInput(dataType, dims string) string {
	return `input { name: "INPUT0" data_type: ` + dataType + ` dims: [` + dims + `] } output { name: "OUTPUT0" data_type: ` + dataType + ` dims: [` + dims + `] } `
}

// startEngine returns an engine with the models and the backends of a test.
func startEngine(t testing.TB, models map[string]string, backends ...backend.Backend) *engine.Engine {
	t.Helper()
	root := t.TempDir()
	for name, config := range models {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "labels.txt"), []byte("cat\ndog\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	backends = append(backends, arithmetic{name: "onnxruntime"}, arithmetic{name: "python"}, identity.Backend{})
	e, err := engine.Start(t.Context(), engine.Options{
		Name: "triton", Version: "2.51.0", Repositories: []string{root}, Backends: backends, LoadThreads: 1,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Failed(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

// arithmetic is a backend that stands in for those of the recorded server: sum
// and difference of two inputs, or one input as it is.
type arithmetic struct{ name string }

func (a arithmetic) Name() string { return a.name }

func (arithmetic) Probe(backend.Source) backend.Probed {
	return backend.Opener(func(_ context.Context, _ *modelpb.ModelConfig, sig *model.Signature, _ backend.Host) (backend.Model, error) {
		return arithmeticModel{sig}, nil
	})
}

type arithmeticModel struct{ sig *model.Signature }

func (m arithmeticModel) Start(context.Context, backend.Placement) (backend.Instance, error) {
	return m, nil
}

func (arithmeticModel) Close() error { return nil }

func (m arithmeticModel) Run(b *infer.Batch) error {
	for _, r := range b.Requests {
		for i := range m.sig.Outputs {
			out := &m.sig.Outputs[i]
			if len(r.Outputs) > 0 && !slices.ContainsFunc(r.Outputs, func(w infer.Wanted) bool { return w.Name == out.Name }) {
				continue
			}
			to := r.Response.AddOutput()
			to.Name, to.Type, to.Index = out.Name, out.Type, i
			to.Shape = append(to.Shape, r.Inputs[0].Shape...)
			to.Data = r.Inputs[0].Data.First
			if len(r.Inputs) == 2 {
				to.Data = combine(out.Type, i, r.Inputs[0].Data.First, r.Inputs[1].Data.First)
			}
		}
	}
	return nil
}

// combine returns the sum of two tensors, or their difference when i is 1.
func combine(t tensor.Type, i int, a, b []byte) []byte {
	le := binary.LittleEndian
	out := make([]byte, len(a))
	for o := 0; o < len(a); o += 4 {
		x, y := le.Uint32(a[o:]), le.Uint32(b[o:])
		if t == tensor.Int32 {
			if i == 1 {
				y = -y
			}
			le.PutUint32(out[o:], x+y)
			continue
		}
		f, g := math.Float32frombits(x), math.Float32frombits(y)
		if i == 1 {
			g = -g
		}
		le.PutUint32(out[o:], math.Float32bits(f+g))
	}
	return out
}
