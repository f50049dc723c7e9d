package model

import (
	"testing"

	"shoal/internal/tensor"
)

func TestCheckGraph(t *testing.T) {
	row := tensor.Shape{-1, 16}
	addSub := Graph{
		Inputs:  []GraphTensor{{"INPUT0", tensor.FP32, row}, {"INPUT1", tensor.FP32, row}},
		Outputs: []GraphTensor{{"OUTPUT0", tensor.FP32, row}, {"OUTPUT1", tensor.FP32, row}},
	}
	const (
		inputs  = `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }, { name: "INPUT1" data_type: TYPE_FP32 dims: 16 } ] `
		outputs = `output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: 16 } ] `
		x       = `input { name: "x" data_type: TYPE_FP32 `
		y       = `output { name: "y" data_type: TYPE_FP32 `
	)
	for _, c := range []struct {
		name, text string
		graph      Graph
		want       string
	}{
		{"all agree", `max_batch_size: 8 ` + inputs + outputs, addSub, ""},
		{"fewer outputs than the graph has", `max_batch_size: 8 ` + inputs + `output { name: "OUTPUT1" data_type: TYPE_FP32 dims: 16 }`, addSub, ""},
		{"too few inputs", `max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } ` + outputs, addSub, "unable to load model 'm', configuration expects 1 inputs, model provides 2"},
		{
			"an input that the graph lacks", `max_batch_size: 8 input [ { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }, { name: "NOPE" data_type: TYPE_FP32 dims: 16 } ]`, addSub,
			"unexpected inference input 'NOPE', allowed inputs are: INPUT0, INPUT1",
		},
		{
			"an output that the graph lacks", `max_batch_size: 8 ` + inputs + `output { name: "NOPE" data_type: TYPE_FP32 dims: 16 }`, addSub,
			"unexpected inference output 'NOPE', allowed outputs are: OUTPUT0, OUTPUT1",
		},
		{
			"an input of another type", `max_batch_size: 8 input [ { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }, { name: "INPUT1" data_type: TYPE_FP32 dims: 16 } ]`, addSub,
			"unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'INPUT0', model provides TYPE_FP32",
		},
		{
			"an output of another type", `max_batch_size: 8 ` + inputs + `output { name: "OUTPUT0" data_type: TYPE_STRING dims: 16 }`, addSub,
			"unable to load model 'm', configuration expects datatype TYPE_STRING for output 'OUTPUT0', model provides TYPE_FP32",
		},
		{
			"an input of another shape", `max_batch_size: 8 input [ { name: "INPUT0" data_type: TYPE_FP32 dims: 8 }, { name: "INPUT1" data_type: TYPE_FP32 dims: 16 } ]`, addSub,
			"model 'm', tensor 'INPUT0': the model expects 2 dimensions (shape [-1,16]) but the model configuration specifies 2 dimensions " +
				"(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,8])",
		},
		{
			"an input of another shape without batching", x + `dims: [ 2, 8 ] }`, graph(tensor.Shape{2, -1, 3}, row),
			"model 'm', tensor 'x': the model expects 3 dimensions (shape [2,-1,3]) but the model configuration specifies 2 dimensions (shape [2,8])",
		},
		{"an input may fix what is open", x + `dims: [ 2, 8 ] }`, graph(tensor.Shape{2, -1}, row), ""},
		{
			"an output may not", x + `dims: 1 } ` + y + `dims: [ 2, 8 ] }`, graph(tensor.Shape{1}, tensor.Shape{2, -1}),
			"model 'm', tensor 'y': the model expects 2 dimensions (shape [2,-1]) but the model configuration specifies 2 dimensions (shape [2,8])",
		},
		{
			"an input may not open what is fixed", x + `dims: -1 }`, graph(tensor.Shape{4}, row),
			"model 'm', tensor 'x': the model expects 1 dimensions (shape [4]) but the model configuration specifies 1 dimensions (shape [-1])",
		},
		{"the reshape counts, not the dims", `max_batch_size: 2 ` + x + `dims: 6 reshape { shape: [ 2, 3 ] } }`, graph(tensor.Shape{-1, 2, 3}, row), ""},
		{"an empty reshape for each row", `max_batch_size: 2 ` + x + `dims: 1 reshape { } }`, graph(tensor.Shape{-1}, row), ""},
		{
			"batching that the graph cannot do", `max_batch_size: 2 ` + x + `dims: 4 }`, graph(tensor.Shape{1, 4}, row),
			"model 'm', tensor 'x': for the model to support batching the shape should have at least 1 dimension and the first dimension must be -1; " +
				"but shape expected by the model is [1,4]",
		},
		{
			"batching of a scalar", `max_batch_size: 2 ` + x + `dims: 1 reshape { } }`, graph(tensor.Shape{}, row),
			"model 'm', tensor 'x': for the model to support batching the shape should have at least 1 dimension and the first dimension must be -1; " +
				"but shape expected by the model is []",
		},
		{"a scalar as one element", x + `dims: [ 1, 1 ] }`, graph(tensor.Shape{}, row), ""},
		{
			"a scalar as two elements", x + `dims: 2 }`, graph(tensor.Shape{}, row),
			"unable to load model 'm', scalar tensor 'x', should only provide 1 in the model configuration when the model doesn't support batching. " +
				"Model configuration provided: [2].",
		},
		{
			"an optional input has a value of its own", x + `dims: 4 } input { name: "w" data_type: TYPE_FP32 dims: 2 optional: true }`,
			Graph{Inputs: graph(tensor.Shape{4}, nil).Inputs, Overridable: []GraphTensor{{"w", tensor.FP32, tensor.Shape{2}}}},
			"",
		},
		{
			"an optional input with batching", `max_batch_size: 2 ` + x + `dims: 4 } input { name: "w" data_type: TYPE_FP32 dims: 2 optional: true }`,
			Graph{Inputs: graph(tensor.Shape{-1, 4}, nil).Inputs, Overridable: []GraphTensor{{"w", tensor.FP32, tensor.Shape{-1, 2}}}},
			"unable to load model 'm', optional input 'w' is not supported for models that support batching",
		},
		{"a ragged input of one open dimension", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true }`, graph(tensor.Shape{-1}, row), ""},
		{
			"a ragged input of two dimensions", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true }`, graph(tensor.Shape{-1, -1}, row),
			"unable to load model 'm', configuration expects model provides input with shape [-1]  for ragged input 'x', model provides [-1,-1]",
		},
		{
			"inputs that the server feeds count", `max_batch_size: 2 ` + x + `dims: 4 } batch_input { } sequence_batching { control_input { name: "s" control { } } state { } }`,
			Graph{Inputs: []GraphTensor{{"x", tensor.FP32, tensor.Shape{-1, 4}}, {Name: "b"}, {Name: "s"}, {Name: "t"}}},
			"",
		},
		{"a scattered output has a shape of its own", x + `dims: 4 } ` + y + `dims: 9 } batch_output { target_name: "y" }`, graph(tensor.Shape{4}, tensor.Shape{-1}), ""},
		{
			"several differences, all named", x + `dims: 3 } output { name: "z" }`, graph(tensor.Shape{4}, tensor.Shape{-1}),
			"model 'm', tensor 'x': the model expects 1 dimensions (shape [4]) but the model configuration specifies 1 dimensions (shape [3]); " +
				"unexpected inference output 'z', allowed outputs are: y",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkError(t, CheckGraph(config(t, `name: "m" `+c.text), c.graph), c.want)
		})
	}
}
