package onnx

import (
	"strings"
	"testing"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// flatNode returns a model of one input IN and one output OUT, both of one
// dimension, with an operator between.
func flatNode(op string, typ tensor.Type) onnxtest.Model {
	return onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: typ, Dims: []any{"T"}}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: typ, Dims: []any{"U"}}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf(op, []string{"IN"}, "OUT")},
	}
}

const scatterOut = ` batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "OUT" source_input: "IN" } `

func TestAScatteredOutputGivesEachRequestItsPart(t *testing.T) {
	for _, c := range []struct {
		name, dims, config string
		in, out            []tensor.Shape
	}{
		{
			"one dimension", `dims: -1`, `dims: -1`,
			[]tensor.Shape{{1, 2}, {1, 4}, {1, 0}, {2, 3}},
			[]tensor.Shape{{1, 2}, {1, 4}, {1, 0}, {2, 3}},
		},
		{
			"a single request", `dims: -1`, `dims: -1`,
			[]tensor.Shape{{2, 3}},
			[]tensor.Shape{{2, 3}},
		},
		{
			"nothing at all", `dims: -1`, `dims: -1`,
			[]tensor.Shape{{1, 0}, {1, 0}},
			[]tensor.Shape{{1, 0}, {1, 0}},
		},
		{
			"fixed dimensions are the output's own", `dims: [ -1, 4 ]`, `dims: [ -1, 2, 2 ]`,
			[]tensor.Shape{{1, 2, 4}, {1, 1, 4}},
			[]tensor.Shape{{1, 2, 2, 2}, {1, 1, 2, 2}},
		},
		{
			"a reshape on both sides", `dims: [ -1, 4 ] reshape { shape: [ 1, -1, 2, 2 ] }`, `dims: [ 2, -1, 2 ] reshape { shape: [ 2, -1, 2 ] }`,
			[]tensor.Shape{{1, 3, 4}, {2, 1, 4}},
			[]tensor.Shape{{1, 2, 3, 2}, {2, 2, 1, 2}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := start(t, flatNode("Relu", tensor.FP32), `max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 allow_ragged_batch: true `+c.dims+`
				} output { name: "OUT" data_type: TYPE_FP32 `+c.config+` }`+scatterOut)
			var requests []*infer.Request
			for i, shape := range c.in {
				requests = append(requests, filled(100*i, shape...))
			}
			if _, err := run(in, requests...); err != nil {
				t.Fatal(err)
			}
			for i, r := range requests {
				n, _ := c.out[i].Elements()
				var want []float64
				for e := range n {
					want = append(want, float64(100*i)+float64(e))
				}
				expectNumbers(t, r, "OUT", c.out[i], want...)
				r.Release()
			}
		})
	}
}

func TestAScatteredOutputOfFixedShapeIsLeftToTheLibrary(t *testing.T) {
	b, log := newBackend(t, nil)
	in := startOn(t, b, write(t, flatNode("Relu", tensor.FP32)), `max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: 2 allow_ragged_batch: true }
		output { name: "OUT" data_type: TYPE_FP32 dims: 2 }`+scatterOut)
	one, two := filled(1, 1, 2), filled(5, 2, 2)
	if _, err := run(in, one, two); err != nil {
		t.Fatal(err)
	}
	expectNumbers(t, one, "OUT", tensor.Shape{1, 2}, 1, 2)
	expectNumbers(t, two, "OUT", tensor.Shape{2, 2}, 5, 6, 7, 8)
	if strings.Contains(log.String(), "not what the model declares") {
		t.Error("got a warning of a wrong shape, want none: nothing was declared")
	}
	one.Release()
	two.Release()
}

func TestAScatteredOutputSkipsRequestsThatDoNotWantIt(t *testing.T) {
	m := flatNode("Relu", tensor.FP32)
	m.Outputs = append(m.Outputs, onnxtest.Tensor{Name: "NEG", Type: tensor.FP32, Dims: []any{"T"}})
	m.Nodes = append(m.Nodes, onnxtest.NodeOf("Neg", []string{"IN"}, "NEG"))
	in := start(t, m, `max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
		output { name: "OUT" data_type: TYPE_FP32 dims: -1 } output { name: "NEG" data_type: TYPE_FP32 dims: -1 }
		batch_output { target_name: [ "OUT", "NEG" ] source_input: "IN" }`)
	a, b := filled(1, 1, 2), filled(5, 1, 1)
	a.Outputs = []infer.Wanted{{Name: "NEG"}}
	if _, err := run(in, a, b); err != nil {
		t.Fatal(err)
	}
	if got := len(a.Response.Outputs); got != 1 {
		t.Errorf("got %d outputs, want 1", got)
	}
	expectNumbers(t, a, "NEG", tensor.Shape{1, 2}, -1, -2)
	expectNumbers(t, b, "NEG", tensor.Shape{1, 1}, -5)
	expectNumbers(t, b, "OUT", tensor.Shape{1, 1}, 5)
	a.Release()
	b.Release()
}

func TestAScatteredOutputOfStrings(t *testing.T) {
	in := start(t, flatNode("Identity", tensor.Bytes), `max_batch_size: 8 input { name: "IN" data_type: TYPE_STRING dims: -1 allow_ragged_batch: true }
		output { name: "OUT" data_type: TYPE_STRING dims: -1 }`+scatterOut)
	texts := []string{"\x01\x00\x00\x00a\x02\x00\x00\x00bc", "", "\x00\x00\x00\x00", "\x03\x00\x00\x00def"}
	var requests []*infer.Request
	for i, n := range []int64{2, 0, 1, 1} {
		requests = append(requests, request(1, arg{0, tensor.Bytes, tensor.Shape{1, n}, [][]byte{[]byte(texts[i])}}))
	}
	if _, err := run(in, requests...); err != nil {
		t.Fatal(err)
	}
	for i, r := range requests {
		if out := result(t, r, "OUT"); string(out.Data) != texts[i] || !out.Shape.Equal(r.Inputs[0].Shape) {
			t.Errorf("request %d: got %v %q, want its input %q", i, out.Shape, out.Data, texts[i])
		}
		r.Release()
	}
}

func TestAScatteredOutputThatDoesNotAddUpFailsTheBatch(t *testing.T) {
	for _, dims := range []string{"dims: [ -1, 2 ]", "dims: [ 4611686018427387904, 4 ]", "dims: 1"} {
		in := start(t, flatNode("Relu", tensor.FP32), `max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
			output { name: "OUT" data_type: TYPE_FP32 `+dims+` }`+scatterOut)
		for range 2 { // the instance lives on
			a, b := filled(0, 1, 3), filled(0, 1, 2)
			_, err := run(in, a, b)
			if status.CodeOf(err) != status.Internal || !strings.HasPrefix(status.Public(err), "model 'm': output 'OUT' has 5 elements, which is not what shape ") {
				t.Errorf("%s: got %v, want an error with the number of elements", dims, err)
			}
			a.Release()
			b.Release()
		}
	}
}

func TestRaggedRunsOfOneShapeAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	m := flatNode("Relu", tensor.FP32)
	for _, name := range []string{"COUNTS", "SHAPES"} {
		m.Inputs = append(m.Inputs, onnxtest.Tensor{Name: name, Type: tensor.Int32, Dims: []any{name}})
	}
	in := start(t, m, `max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
		batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "COUNTS" data_type: TYPE_INT32 source_input: "IN" }
		batch_input { kind: BATCH_ITEM_SHAPE_FLATTEN target_name: "SHAPES" data_type: TYPE_INT32 source_input: "IN" }
		output { name: "OUT" data_type: TYPE_FP32 dims: -1 }`+scatterOut)
	requests := []*infer.Request{filled(1, 1, 2), filled(5, 2, 3)}
	b := &infer.Batch{Requests: requests, Rows: 3}
	once := func() {
		if err := in.Run(b); err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			r.Response.Release()
		}
	}
	once() // makes what is kept
	if got := testing.AllocsPerRun(200, once); got != 0 {
		t.Errorf("got %v allocations per run, want 0", got)
	}
}
