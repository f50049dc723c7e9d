package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// echo returns a model of a ragged input IN and the batch inputs ITEMS, of
// which it takes the number of rows, and those in made. It answers each row
// with all of IN as ALL, and of each batch input with the whole content, X_ALL,
// and the shape, X_SHAPE: what a model sees of its batch.
func echo(typ tensor.Type, made ...onnxtest.Tensor) onnxtest.Model {
	m := onnxtest.Model{
		Inputs: append([]onnxtest.Tensor{
			{Name: "IN", Type: typ, Dims: []any{"total"}},
			{Name: "ITEMS", Type: tensor.Int32, Dims: []any{"rows", "rank"}},
		}, made...),
		Initializers: []onnxtest.Initializer{
			{Name: "one", Type: tensor.Int64, Dims: []int64{1}, Raw: onnxtest.Int64s(1)},
			{Name: "flat", Type: tensor.Int64, Dims: []int64{2}, Raw: onnxtest.Int64s(1, -1)},
		},
		Nodes: []onnxtest.Node{
			{Op: "Shape", Inputs: []string{"ITEMS"}, Outputs: []string{"rows"}, Attrs: []onnxtest.Attr{{Name: "start", Value: int64(0)}, {Name: "end", Value: int64(1)}}},
			{Op: "Concat", Inputs: []string{"rows", "one"}, Outputs: []string{"to"}, Attrs: []onnxtest.Attr{{Name: "axis", Value: int64(0)}}},
		},
	}
	repeat := func(from, to string, typ tensor.Type) {
		m.Nodes = append(m.Nodes,
			onnxtest.NodeOf("Reshape", []string{from, "flat"}, from+"_flat"),
			onnxtest.NodeOf("Expand", []string{from + "_flat", "to"}, to))
		m.Outputs = append(m.Outputs, onnxtest.Tensor{Name: to, Type: typ, Dims: []any{"R" + to, "K" + to}})
	}
	repeat("IN", "ALL", typ)
	for _, t := range made {
		repeat(t.Name, t.Name+"_ALL", t.Type)
		m.Nodes = append(m.Nodes, onnxtest.NodeOf("Shape", []string{t.Name}, t.Name+"_dims"))
		repeat(t.Name+"_dims", t.Name+"_SHAPE", tensor.Int64)
	}
	return m
}

const echoConfig = `max_batch_size: 8 batch_input { kind: BATCH_ITEM_SHAPE target_name: "ITEMS" data_type: TYPE_INT32 source_input: "IN" } `

// filled returns a request whose only input has that shape and counts up from
// first.
func filled(first int, shape ...int64) *infer.Request {
	n, _ := tensor.Shape(shape).Elements()
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(first + i)
	}
	return request(int(shape[0]), arg{0, tensor.FP32, shape, [][]byte{onnxtest.Floats(data...)}})
}

// numbers reads FP32, INT32 and INT64 tensors.
func numbers(out *infer.Output) []float64 {
	var list []float64
	for data := out.Data; len(data) > 0; data = data[out.Type.Size():] {
		switch out.Type {
		case tensor.FP32:
			list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
		case tensor.Int32:
			list = append(list, float64(int32(binary.LittleEndian.Uint32(data))))
		default:
			list = append(list, float64(binary.LittleEndian.Uint64(data)))
		}
	}
	return list
}

func expectNumbers(t *testing.T, r *infer.Request, name string, shape tensor.Shape, want ...float64) {
	t.Helper()
	if r.Err != nil {
		t.Fatalf("%s: got %v, want an answer", name, r.Err)
	}
	out := result(t, r, name)
	if !out.Shape.Equal(shape) || !slices.Equal(numbers(out), want) {
		t.Errorf("%s: got %v %v, want %v %v", name, out.Shape, numbers(out), shape, want)
	}
}

func TestBatchInputsTellTheShapesOfABatch(t *testing.T) {
	flat := [][]int64{{1, 2}, {1, 4}, {1, 0}, {1, 3}}
	deep := [][]int64{{2, 1, 2}, {1, 1, 2}, {1, 2, 2}}
	for _, c := range []struct {
		kind   string
		shapes [][]int64
		shape  []float64
		want   []float64
	}{
		{"BATCH_ELEMENT_COUNT", flat, []float64{4}, []float64{2, 4, 0, 3}},
		{"BATCH_ELEMENT_COUNT", deep, []float64{3}, []float64{4, 2, 4}},
		{"BATCH_ELEMENT_COUNT", flat[:1], []float64{1}, []float64{2}},
		{"BATCH_ACCUMULATED_ELEMENT_COUNT", flat, []float64{4}, []float64{2, 6, 6, 9}},
		{"BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", flat, []float64{5}, []float64{0, 2, 6, 6, 9}},
		{"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", flat, []float64{4}, []float64{0, 0, 0, 0}},
		{"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", flat[2:3], []float64{0}, []float64{}},
		{"BATCH_ITEM_SHAPE", deep, []float64{4, 2}, []float64{1, 2, 1, 2, 1, 2, 2, 2}},
		{"BATCH_ITEM_SHAPE_FLATTEN", deep, []float64{8}, []float64{1, 2, 1, 2, 1, 2, 2, 2}},
	} {
		for _, typ := range []tensor.Type{tensor.Int32, tensor.FP32} {
			t.Run(fmt.Sprint(c.kind, " ", typ, " ", c.shapes), func(t *testing.T) {
				dims, rank := []any{"K"}, len(c.shapes[0])-1
				if len(c.shape) == 2 {
					dims = append(dims, rank)
				}
				in := start(t, echo(tensor.FP32, onnxtest.Tensor{Name: "B", Type: typ, Dims: dims}), echoConfig+`
					input { name: "IN" data_type: TYPE_FP32 allow_ragged_batch: true `+strings.Repeat("dims: -1 ", rank)+`}
					batch_input { kind: `+c.kind+` target_name: "B" data_type: `+typ.ConfigName()+` source_input: "IN" }`)
				dirty(t, in, c.shapes[0])
				var requests []*infer.Request
				var all []float64
				for _, shape := range c.shapes {
					r := filled(10*len(requests), shape...)
					requests = append(requests, r)
					n, _ := tensor.Shape(shape).Elements()
					for i := range n {
						all = append(all, float64(10*(len(requests)-1))+float64(i))
					}
				}
				if _, err := run(in, requests...); err != nil {
					t.Fatal(err)
				}
				for i, r := range requests {
					rows := c.shapes[i][0]
					times := func(list []float64) []float64 { return slices.Repeat(list, int(rows)) }
					expectNumbers(t, r, "ALL", tensor.Shape{rows, int64(len(all))}, times(all)...)
					expectNumbers(t, r, "B_SHAPE", tensor.Shape{rows, int64(len(c.shape))}, times(c.shape)...)
					expectNumbers(t, r, "B_ALL", tensor.Shape{rows, int64(len(c.want))}, times(c.want)...)
					r.Release()
				}
			})
		}
	}
}

// dirty runs a larger batch, so that a later one finds content in the region
// that is not its own.
func dirty(t *testing.T, in *instance, shape []int64) {
	shape = slices.Clone(shape)
	shape[0], shape[len(shape)-1] = 5, 7
	r := filled(1000, shape...)
	defer r.Release()
	if _, err := run(in, r); err != nil {
		t.Fatal(err)
	}
}

func TestABatchInputMayHaveSeveralTargets(t *testing.T) {
	in := start(t, echo(tensor.FP32, onnxtest.Tensor{Name: "B", Type: tensor.Int32, Dims: []any{"K"}}, onnxtest.Tensor{Name: "C", Type: tensor.Int32, Dims: []any{"L"}}),
		echoConfig+`input { name: "IN" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
		batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: [ "B", "C" ] data_type: TYPE_INT32 source_input: "IN" }`)
	a, b := filled(0, 1, 3), filled(0, 1, 2)
	if _, err := run(in, a, b); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"B_ALL", "C_ALL"} {
		expectNumbers(t, a, name, tensor.Shape{1, 2}, 3, 5)
		expectNumbers(t, b, name, tensor.Shape{1, 2}, 3, 5)
	}
	a.Release()
	b.Release()
}

func TestABatchInputMayBeOfAnInputThatIsNotRagged(t *testing.T) {
	m := onnxtest.Identity(tensor.FP32, "any")
	m.Inputs = append(m.Inputs, onnxtest.Tensor{Name: "ITEMS", Type: tensor.FP32, Dims: []any{"N", 1}})
	m.Outputs = append(m.Outputs, onnxtest.Tensor{Name: "SHAPES", Type: tensor.FP32, Dims: []any{"N", 1}})
	m.Nodes = append(m.Nodes, onnxtest.NodeOf("Identity", []string{"ITEMS"}, "SHAPES"))
	in := start(t, m, `max_batch_size: 4 input { name: "IN" data_type: TYPE_FP32 dims: [ 1, -1 ] reshape { shape: -1 } }
		batch_input { kind: BATCH_ITEM_SHAPE target_name: "ITEMS" data_type: TYPE_FP32 source_input: "IN" }
		output { name: "OUT" data_type: TYPE_FP32 dims: -1 } output { name: "SHAPES" data_type: TYPE_FP32 dims: 1 }`)
	a, b := filled(1, 1, 1, 2), filled(5, 2, 1, 2)
	if _, err := run(in, a, b); err != nil {
		t.Fatal(err)
	}
	expectNumbers(t, a, "OUT", tensor.Shape{1, 2}, 1, 2)
	expectNumbers(t, b, "OUT", tensor.Shape{2, 2}, 5, 6, 7, 8)
	expectNumbers(t, b, "SHAPES", tensor.Shape{2, 1}, 2, 2) // the shape that the graph sees
	a.Release()
	b.Release()
}

func TestABatchInputOfAModelWithoutABatchDimensionHasOneItem(t *testing.T) {
	m := onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"T"}}, {Name: "ITEMS", Type: tensor.Int32, Dims: []any{"n", 2}}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.Int32, Dims: []any{"n", 2}}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("Identity", []string{"ITEMS"}, "OUT")},
	}
	in := start(t, m, `input { name: "IN" data_type: TYPE_FP32 dims: [ -1, -1 ] allow_ragged_batch: true } output { name: "OUT" data_type: TYPE_INT32 dims: [ -1, 2 ] }
		batch_input { kind: BATCH_ITEM_SHAPE target_name: "ITEMS" data_type: TYPE_INT32 source_input: "IN" }`)
	r := filled(0, 3, 2)
	defer r.Release()
	r.Rows = 1
	if _, err := run(in, r); err != nil {
		t.Fatal(err)
	}
	expectNumbers(t, r, "OUT", tensor.Shape{1, 2}, 3, 2)
}

func TestABatchInputThatCannotCountItsElementsIsAnError(t *testing.T) {
	r := request(1, arg{0, tensor.Uint8, tensor.Shape{1, math.MaxInt32 + 1}, nil})
	defer r.Release()
	b := batchInput{name: "B", kind: modelpb.BatchInput_BATCH_ELEMENT_COUNT, typ: tensor.Int32}
	if _, err := b.fill(nil, new(port), []*infer.Request{r}); err == nil || !strings.Contains(err.Error(), "more than INT32 can count") {
		t.Errorf("got %v, want an error", err)
	}
	b.typ = tensor.FP32
	if got, err := b.fill(nil, new(port), []*infer.Request{r}); err != nil || string(got) != string(onnxtest.Floats(math.MaxInt32+1)) {
		t.Errorf("got %x and %v, want the number", got, err)
	}
}

func TestARaggedRequestAtFaultFailsAlone(t *testing.T) {
	m := echo(tensor.Bytes)
	in := start(t, m, echoConfig+`input { name: "IN" data_type: TYPE_STRING dims: -1 allow_ragged_batch: true }`)
	words := func(list ...string) (b []byte) {
		for _, w := range list {
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(w))), w...)
		}
		return b
	}
	ask := func(n int64, data []byte) *infer.Request {
		return request(1, arg{0, tensor.Bytes, tensor.Shape{1, n}, [][]byte{data}})
	}
	first, last := ask(2, words("a", "bcd")), ask(3, words("", "e", "f"))
	if _, err := run(in, first, last); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*infer.Request{first, last} {
		out := result(t, r, "ALL")
		if want := words("a", "bcd", "", "e", "f"); r.Err != nil || string(out.Data) != string(want) || !out.Shape.Equal(tensor.Shape{1, 5}) {
			t.Errorf("got %v %v %q, want [1,5] %q", r.Err, out.Shape, out.Data, want)
		}
	}
	first.Release()
	last.Release()
}
