package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"shoal/internal/tensor"
)

// graph returns a graph with one input "x" and one output "y" of FP32.
func graph(x, y tensor.Shape) Graph {
	return Graph{
		Inputs:  []GraphTensor{{"x", tensor.FP32, x}},
		Outputs: []GraphTensor{{"y", tensor.FP32, y}},
	}
}

func TestComplete(t *testing.T) {
	row := tensor.Shape{-1, 4}
	for _, c := range []struct {
		name, text   string
		graph        Graph
		defaultBatch int
		want, err    string
	}{
		{
			"nothing is given", ``, graph(row, row), 4,
			`max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 } dynamic_batching { }`, "",
		},
		{
			"the graph's order stays", ``,
			Graph{Inputs: []GraphTensor{{"b", tensor.Int64, row}, {"a", tensor.Bytes, tensor.Shape{-1, -1}}}, Outputs: graph(row, row).Outputs},
			1,
			`max_batch_size: 1 input [ { name: "b" data_type: TYPE_INT64 dims: 4 }, { name: "a" data_type: TYPE_STRING dims: -1 } ] output { name: "y" data_type: TYPE_FP32 dims: 4 }`, "",
		},
		{
			"both sides are given", `input { name: "i" } output { name: "o" }`, graph(row, row), 4,
			`input { name: "i" } output { name: "o" }`, "",
		},
		{
			"a batch input counts as an input", `batch_input { } output { name: "o" }`, graph(row, row), 4,
			`batch_input { } output { name: "o" }`, "",
		},
		{
			"one side is given and left alone", `input { name: "i" }`, graph(row, row), 4,
			`max_batch_size: 4 input { name: "i" } output { name: "y" data_type: TYPE_FP32 dims: 4 } dynamic_batching { }`, "",
		},
		{
			"a batch size that is given stays", `max_batch_size: 16`, graph(row, row), 4,
			`max_batch_size: 16 input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 } dynamic_batching { }`, "",
		},
		{
			"a scheduler that is given stays", `max_batch_size: 16 sequence_batching { }`, graph(row, row), 4,
			`max_batch_size: 16 input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 } sequence_batching { }`, "",
		},
		{
			"batches of one need no batcher", `max_batch_size: 1`, graph(row, row), 4,
			`max_batch_size: 1 input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }`, "",
		},
		{
			"a default of zero leaves batching off", ``, graph(row, row), 0,
			`input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] } output { name: "y" data_type: TYPE_FP32 dims: [ -1, 4 ] }`, "",
		},
		{
			"a fixed first dimension is no batch", ``, graph(row, tensor.Shape{2, 4}), 4,
			`input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 2, 4 ] }`, "",
		},
		{
			"a scalar without batching", ``, graph(row, tensor.Shape{}), 4,
			`input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] } output { name: "y" data_type: TYPE_FP32 dims: 1 }`, "",
		},
		{
			"a scalar for each row", ``, graph(row, tensor.Shape{-1}), 4,
			`max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { } } dynamic_batching { }`, "",
		},
		{
			"batching that the graph cannot do", `max_batch_size: 8`, graph(row, tensor.Shape{2, 4}), 4,
			`max_batch_size: 8`, "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := config(t, `name: "m" `+c.text)
			_, err := Complete(got, c.graph, c.defaultBatch)
			checkError(t, err, c.err)
			if diff := cmp.Diff(config(t, `name: "m" `+c.want), got, protocmp.Transform()); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompleteNotesWhatItFilledIn(t *testing.T) {
	row := tensor.Shape{-1, 4}
	notes, err := Complete(config(t, `name: "m"`), graph(row, row), 4)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(notes, "\n")
	for _, want := range []string{"max_batch_size set to 4", "dynamic_batching", "inputs", "outputs"} {
		if !strings.Contains(got, want) {
			t.Errorf("notes: got %q, want one with %q", got, want)
		}
	}
}

func TestCompleteDoesNotShareTheGraphsShapes(t *testing.T) {
	g := graph(tensor.Shape{-1, 4}, tensor.Shape{-1, 4})
	cfg := config(t, `name: "m"`)
	if _, err := Complete(cfg, g, 4); err != nil {
		t.Fatal(err)
	}
	cfg.Input[0].Dims[0] = 99
	if got := g.Inputs[0].Dims[1]; got != 4 {
		t.Errorf("the graph's dimension: got %d, want 4", got)
	}
}
