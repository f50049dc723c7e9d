package onnx

import (
	"strings"
	"testing"
	"time"

	"shoal/internal/backend/cuda/cudatest"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// convolution doubles its input.
var convolution = onnxtest.Model{
	Inputs:       []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"N", 1, 2, 2}}},
	Outputs:      []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{"N", 1, 2, 2}}},
	Nodes:        []onnxtest.Node{onnxtest.NodeOf("Conv", []string{"IN", "W"}, "OUT")},
	Initializers: []onnxtest.Initializer{{Name: "W", Type: tensor.FP32, Dims: []int64{1, 1, 1, 1}, Raw: onnxtest.Floats(2)}},
}

func TestConvolutionsAreTriedInBothLayouts(t *testing.T) {
	sizes := onGPU + ` parameters { key: "cuda_graph_batch_sizes" value { string_value: "1,2" } }`
	auto := ` parameters { key: "prefer_nhwc" value { string_value: "auto" } }`
	for _, c := range []struct {
		name   string
		model  onnxtest.Model
		config string
		graphs int // of 1, 2 and 8 rows, and of 1 and 8 in each trial
	}{
		{"convolutions", convolution, sizes + auto, 3 + 2 + 2},
		{"none", onnxtest.Identity(tensor.FP32, 1, 2, 2), sizes + auto, 3},
		{"the usual layout", convolution, sizes, 3},
		{"the configuration decides", convolution, sizes + ` parameters { key: "prefer_nhwc" value { string_value: "0" } }`, 3},
		{"no graphs to compare", convolution, sizes + auto + ` parameters { key: "enable_cuda_graph" value { string_value: "0" } }`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices := cudatest.New(1)
			b, _ := gpuBackend(t, devices)
			in := startOnGPU(t, b, c.model, c.config)
			if got := strings.Count(strings.Join(devices[0].Calls(), "\n"), "Capture"); got != c.graphs {
				t.Errorf("got %d graphs, want %d", got, c.graphs)
			}
			r := request(1, arg{0, tensor.FP32, tensor.Shape{1, 1, 2, 2}, [][]byte{onnxtest.Floats(1, 2, 3, 4)}})
			if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}, Rows: 1}); err != nil {
				t.Fatal(err)
			}
			want := onnxtest.Floats(2, 4, 6, 8)
			if c.name == "none" {
				want = onnxtest.Floats(1, 2, 3, 4)
			}
			if out := result(t, r, "OUT"); string(out.Data) != string(want) {
				t.Errorf("got %x, want %x", out.Data, want)
			}
			r.Release()
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			if left := devices[0].Left(); left != "" {
				t.Errorf("got left on the device: %s, want nothing", left)
			}
		})
	}
}

func TestALayoutMustBeFasterWithTheSameOutputs(t *testing.T) {
	plain := trial{took: []time.Duration{100, 1000}}
	for _, c := range []struct {
		name      string
		few, many time.Duration
		want      bool
	}{
		{"faster", 60, 600, true},
		{"hardly faster", 100, 980, false},
		{"slower for one row", 120, 600, false},
		{"slower for many", 60, 1100, false},
	} {
		if got := (trial{took: []time.Duration{c.few, c.many}}).faster(plain); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	m := &loaded{outputs: make([]port, 1)}
	m.outputs[0].Type = tensor.FP32
	of := func(v ...float32) trial { return trial{outputs: [][][]byte{{onnxtest.Floats(v...)}}} }
	if !m.sameOutputs(of(1, 100), of(1.001, 100.5)) || m.sameOutputs(of(1, 100), of(1, 90)) {
		t.Error("outputs that differ in their last digits are the same, others are not")
	}
}
