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
		count   = `batch_input { kind: BATCH_ELEMENT_COUNT data_type: TYPE_INT32 source_input: "x" `
		items   = `batch_input { kind: BATCH_ITEM_SHAPE data_type: TYPE_INT32 source_input: "x" `
		scatter = `batch_output { target_name: "y" source_input: "x" } `
	)
	made := func(dims ...int64) Graph {
		return Graph{Inputs: []GraphTensor{{"x", tensor.FP32, tensor.Shape{-1}}, {"b", tensor.Int32, dims}}, Outputs: graph(nil, row).Outputs}
	}
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
			"",
		},
		{
			"an optional input that has no rows", `max_batch_size: 2 ` + x + `dims: 4 } input { name: "w" data_type: TYPE_FP32 dims: 2 optional: true }`,
			Graph{Inputs: graph(tensor.Shape{-1, 4}, nil).Inputs, Overridable: []GraphTensor{{"w", tensor.FP32, tensor.Shape{2}}}},
			"model 'm', tensor 'w': for the model to support batching the shape should have at least 1 dimension and the first dimension must be -1; " +
				"but shape expected by the model is [2]",
		},
		{
			"an optional input that the graph cannot do without", x + `dims: 4 optional: true }`, graph(tensor.Shape{4}, row),
			"unable to load model 'm', configuration expects 0 inputs, model provides 1; " +
				"unable to load model 'm', optional input 'x' has no value in the model to stand for one that a request leaves out; " +
				"give it an initializer of the same name, or make it required",
		},
		{"a ragged input of one open dimension", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true }`, graph(tensor.Shape{-1}, row), ""},
		{
			"a ragged input of two dimensions", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true }`, graph(tensor.Shape{-1, -1}, row),
			"unable to load model 'm', configuration expects model provides input with shape [-1]  for ragged input 'x', model provides [-1,-1]",
		},
		{
			"inputs that the server feeds count", `max_batch_size: 2 ` + x + `dims: 4 } ` + count + `target_name: [ "b", "c" ] } sequence_batching { control_input { name: "s" control { } } state { } }`,
			Graph{Inputs: []GraphTensor{
				{"x", tensor.FP32, tensor.Shape{-1, 4}}, {"b", tensor.Int32, tensor.Shape{-1}}, {"c", tensor.Int32, tensor.Shape{-1}}, {Name: "s"}, {Name: "t"},
			}},
			"",
		},
		{"a scattered output has a shape of its own", x + `dims: 4 } ` + y + `dims: 9 } batch_output { target_name: "y" }`, graph(tensor.Shape{4}, tensor.Shape{-1}), ""},
		{"an output scattered by a shape in which it is known", x + `dims: [ -1, 2 ] } ` + y + `dims: [ 3, 2, 5 ] } ` + scatter, graph(tensor.Shape{-1, 2}, row), ""},
		{
			"an output scattered by a shape that is too short", x + `dims: -1 } ` + y + `dims: [ -1, -1 ] } ` + scatter, graph(tensor.Shape{-1}, row),
			"model 'm', tensor 'y': shape [-1,-1] has a variable-size dimension beyond those of [-1], the shape of 'x', its source in batch_output",
		},
		{
			"an output that is scattered twice", x + `dims: -1 } ` + y + `dims: -1 } ` + scatter + scatter, graph(tensor.Shape{-1}, row),
			"unable to load model 'm', output 'y' is the target of more than one batch_output",
		},
		{"a batch input", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true } ` + count + `target_name: "b" }`, made(-1), ""},
		{"a batch input of item shapes", `max_batch_size: 2 ` + x + `dims: [ -1, -1 ] allow_ragged_batch: true } ` + items + `target_name: "b" }`, made(-1, 2), ""},
		{
			"a batch input of item shapes of another rank", `max_batch_size: 2 ` + x + `dims: [ -1, -1 ] allow_ragged_batch: true } ` + items + `target_name: "b" }`, made(-1, 3),
			"model 'm', tensor 'b': the model expects 2 dimensions (shape [-1,3]) but batch input kind 'BATCH_ITEM_SHAPE' of input 'x' makes 2 dimensions (shape [-1,2])",
		},
		{
			"a batch input of another rank", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true } ` + count + `target_name: "b" }`, made(-1, 1),
			"model 'm', tensor 'b': the model expects 2 dimensions (shape [-1,1]) but batch input kind 'BATCH_ELEMENT_COUNT' of input 'x' makes 1 dimensions (shape [-1])",
		},
		{
			"a batch input that the graph lacks", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true } ` + count + `target_name: "c" }`, made(-1),
			"unexpected inference input 'c', allowed inputs are: b, x",
		},
		{
			"a batch input of another type", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true } batch_input { data_type: TYPE_FP32 target_name: "b" }`, made(-1),
			"unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'b', model provides TYPE_INT32",
		},
		{
			"a batch input that clients send too", `max_batch_size: 2 ` + x + `dims: -1 allow_ragged_batch: true } ` + count + `target_name: "x" }`, graph(tensor.Shape{-1}, row),
			"unable to load model 'm', configuration expects 2 inputs, model provides 1; " +
				"unable to load model 'm', input 'x' is fed more than once: it is the target of a batch_input and an input or another target; " +
				"unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'x', model provides TYPE_FP32",
		},
		{
			"a batch input without a target", x + `dims: -1 } ` + count + ` }`, graph(tensor.Shape{-1}, row),
			"batch input kind 'BATCH_ELEMENT_COUNT' must specify 'target_name' for m",
		},
		{
			"a batch input of an optional input", x + `dims: -1 optional: true } ` + count + `target_name: "b" }`,
			Graph{Inputs: []GraphTensor{{"b", tensor.Int32, tensor.Shape{-1}}}, Overridable: []GraphTensor{{"x", tensor.FP32, tensor.Shape{-1}}}},
			"unable to load model 'm', input 'x' is the source of a batch_input and so cannot be optional",
		},
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
