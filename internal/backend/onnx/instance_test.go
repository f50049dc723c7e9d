package onnx

import (
	"bytes"
	"strings"
	"testing"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

func TestShapesAreTurnedIntoWhatTheGraphWants(t *testing.T) {
	in, out := onnxtest.Tensor{Name: "IN", Type: tensor.FP32}, onnxtest.Tensor{Name: "OUT", Type: tensor.FP32}
	relu := func(dims ...any) onnxtest.Model {
		in.Dims, out.Dims = dims, dims
		return onnxtest.Model{Inputs: []onnxtest.Tensor{in}, Outputs: []onnxtest.Tensor{out}, Nodes: []onnxtest.Node{onnxtest.NodeOf("Relu", []string{"IN"}, "OUT")}}
	}
	for _, c := range []struct {
		name   string
		model  onnxtest.Model
		config string
		rows   int
		shape  tensor.Shape // in and out
	}{
		{
			"a reshape of both sides", relu("N", 2, 3), `max_batch_size: 4
			input { name: "IN" data_type: TYPE_FP32 dims: 6 reshape { shape: [2, 3] } } output { name: "OUT" data_type: TYPE_FP32 dims: 6 reshape { shape: [2, 3] } }`,
			2,
			tensor.Shape{2, 6},
		},
		{
			"a reshape with a variable dimension", relu("N", "a", 1, 3), `max_batch_size: 4
			input { name: "IN" data_type: TYPE_FP32 dims: [3, -1] reshape { shape: [-1, 1, 3] } } output { name: "OUT" data_type: TYPE_FP32 dims: [3, -1] reshape { shape: [-1, 1, 3] } }`,
			2,
			tensor.Shape{2, 3, 5},
		},
		{"a vector of rows", relu("N"), ``, 3, tensor.Shape{3, 1}},
		{"a scalar", relu(), ``, 1, tensor.Shape{1}},
		{"a batch of one row", relu("N", 4), ``, 1, tensor.Shape{1, 4}},
		{"no batch dimension", relu(2, "a"), ``, 1, tensor.Shape{2, 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := start(t, c.model, c.config)
			n, _ := c.shape.Elements()
			data := make([]float32, n)
			for i := range data {
				data[i] = float32(i + 1)
			}
			r := request(c.rows, arg{0, tensor.FP32, c.shape, [][]byte{onnxtest.Floats(data...)}})
			defer r.Release()
			if _, err := run(in, r); err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
			out := result(t, r, "OUT")
			if !out.Shape.Equal(c.shape) || string(out.Data) != string(onnxtest.Floats(data...)) {
				t.Errorf("got %v %x, want %v and the input's content", out.Shape, out.Data, c.shape)
			}
		})
	}
}

// liar returns a model whose output has other dimensions than it declares: its
// input's second dimension is repeated, as a run-time input says.
func liar(declared ...any) onnxtest.Model {
	return onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"N", 2}}, {Name: "TIMES", Type: tensor.Int64, Dims: []any{2}}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: declared}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("Tile", []string{"IN", "TIMES"}, "OUT")},
	}
}

func TestAnOutputWhoseDeclaredShapeIsALieStillArrives(t *testing.T) {
	b, log := newBackend(t, nil)
	in := startOn(t, b, write(t, liar(2, 2)), `input { name: "IN" data_type: TYPE_FP32 dims: [-1, 2] } input { name: "TIMES" data_type: TYPE_INT64 dims: 2 }
		output { name: "OUT" data_type: TYPE_FP32 dims: [2, 2] }`)
	for _, times := range []int64{2, 2, 1} {
		r := request(1, arg{0, tensor.FP32, tensor.Shape{2, 2}, [][]byte{onnxtest.Floats(1, 2, 3, 4)}},
			arg{1, tensor.Int64, tensor.Shape{2}, [][]byte{onnxtest.Int64s(1, times)}})
		if _, err := run(in, r); err != nil {
			t.Fatal(err)
		}
		want := tensor.Shape{2, 2 * times}
		if got := result(t, r, "OUT"); !got.Shape.Equal(want) || len(got.Data) != int(16*times) {
			t.Errorf("repeated %d times: got %v with %d bytes, want %v", times, got.Shape, len(got.Data), want)
		}
		r.Release()
	}
	if got := strings.Count(log.String(), "not what the model declares"); got != 1 {
		t.Errorf("got %d warnings, want one", got)
	}
}

func TestAnOutputThatIsNotRowsFailsTheBatch(t *testing.T) {
	m := onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"N", 2}}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{"M", 2}}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("Concat", []string{"IN", "IN"}, "OUT")},
	}
	m.Nodes[0].Attrs = []onnxtest.Attr{{Name: "axis", Value: int64(0)}}
	in := start(t, m, ``)
	for range 2 { // the instance lives on
		r := request(2, arg{0, tensor.FP32, tensor.Shape{2, 2}, [][]byte{onnxtest.Floats(1, 2, 3, 4)}})
		_, err := run(in, r)
		const want = "model 'm': output 'OUT' has shape [4,2] for a batch of 2 rows: its first dimension must be the batch's; set max_batch_size to 0 if the model does not batch along it"
		if status.Public(err) != want || status.CodeOf(err) != status.Internal {
			t.Errorf("got %v, want %s", err, want)
		}
		r.Release()
	}
}

// Files may declare another number of dimensions than their outputs have. Triton serves
// them.
func TestAnOutputOfAnotherRank(t *testing.T) {
	m := onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"a"}}, {Name: "TO", Type: tensor.Int64, Dims: []any{"r"}}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{"b", "c"}}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("Reshape", []string{"IN", "TO"}, "OUT")},
	}
	for _, c := range []struct{ output, fault string }{
		{`dims: [-1, -1]`, ""},
		{`dims: [-1, -1, 1] reshape { shape: [-1, -1] }`, "output 'OUT' has shape [2,2,1], but its configuration reshapes [-1,-1]"},
	} {
		in := start(t, m, `input { name: "IN" data_type: TYPE_FP32 dims: -1 } input { name: "TO" data_type: TYPE_INT64 dims: -1 } output { name: "OUT" data_type: TYPE_FP32 `+c.output+` }`)
		r := request(1, arg{0, tensor.FP32, tensor.Shape{4}, [][]byte{onnxtest.Floats(1, 2, 3, 4)}}, arg{1, tensor.Int64, tensor.Shape{3}, [][]byte{onnxtest.Int64s(2, 2, 1)}})
		_, err := run(in, r)
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: got %v, want an error with both shapes", c.output, err)
		case c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.output, err)
		case c.fault == "":
			if got, want := result(t, r, "OUT"), (tensor.Shape{2, 2, 1}); !got.Shape.Equal(want) || len(got.Data) != 16 {
				t.Errorf("%s: got %v with %d bytes, want %v", c.output, got.Shape, len(got.Data), want)
			}
		}
		r.Release()
	}
}

func TestAFailedRunIsInternalAndTheInstanceLivesOn(t *testing.T) {
	m := onnxtest.Model{
		Inputs:       []onnxtest.Tensor{{Name: "IN", Type: tensor.Int64, Dims: []any{"N", 1}}},
		Outputs:      []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{"N", 1}}},
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Gather", []string{"W", "IN"}, "OUT")},
		Initializers: []onnxtest.Initializer{{Name: "W", Type: tensor.FP32, Dims: []int64{2}, Raw: onnxtest.Floats(7, 8)}},
	}
	in := start(t, m, ``)
	ask := func(index int64) (*infer.Request, error) {
		r := request(1, arg{0, tensor.Int64, tensor.Shape{1, 1}, [][]byte{onnxtest.Int64s(index)}})
		_, err := run(in, r)
		return r, err
	}
	for range 3 {
		r, err := ask(99)
		if status.CodeOf(err) != status.Internal || !strings.HasPrefix(status.Public(err), "onnx runtime error ") {
			t.Errorf("got %v, want ONNX Runtime's error", err)
		}
		r.Release()
		r, err = ask(1)
		if err != nil {
			t.Fatal(err)
		}
		if got := result(t, r, "OUT").Data; string(got) != string(onnxtest.Floats(8)) {
			t.Errorf("got %x, want 8", got)
		}
		r.Release()
	}
}

func TestAnOptionalInputMayBeLeftOut(t *testing.T) {
	m := onnxtest.Model{
		Inputs:       []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{2}}, {Name: "W", Type: tensor.FP32, Dims: []any{2}}},
		Outputs:      []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{2}}},
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Add", []string{"IN", "W"}, "OUT")},
		Initializers: []onnxtest.Initializer{{Name: "W", Type: tensor.FP32, Dims: []int64{2}, Raw: onnxtest.Floats(10, 20)}},
	}
	in := start(t, m, `input { name: "IN" data_type: TYPE_FP32 dims: 2 } input { name: "W" data_type: TYPE_FP32 dims: 2 optional: true } output { name: "OUT" data_type: TYPE_FP32 dims: 2 }`)
	value := arg{0, tensor.FP32, tensor.Shape{2}, [][]byte{onnxtest.Floats(1, 2)}}
	weight := arg{1, tensor.FP32, tensor.Shape{2}, [][]byte{onnxtest.Floats(100, 200)}}
	for _, c := range []struct {
		args []arg
		want []byte
	}{{[]arg{value}, onnxtest.Floats(11, 22)}, {[]arg{value, weight}, onnxtest.Floats(101, 202)}, {[]arg{value}, onnxtest.Floats(11, 22)}} {
		r := request(1, c.args...)
		if _, err := run(in, r); err != nil {
			t.Fatal(err)
		}
		if got := result(t, r, "OUT").Data; string(got) != string(c.want) {
			t.Errorf("%d inputs: got %x, want %x", len(c.args), got, c.want)
		}
		r.Release()
	}
}

func TestAnOptionalInputOfABatchIsGatheredOrLeftOut(t *testing.T) {
	m := onnxtest.Model{
		Inputs:       []onnxtest.Tensor{{Name: "W", Type: tensor.FP32, Dims: []any{"N", 2}}, {Name: "IN", Type: tensor.FP32, Dims: []any{"N", 2}}},
		Outputs:      []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{"N", 2}}},
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Add", []string{"IN", "W"}, "OUT")},
		Initializers: []onnxtest.Initializer{{Name: "W", Type: tensor.FP32, Dims: []int64{1, 2}, Raw: onnxtest.Floats(10, 20)}},
	}
	in := start(t, m, `max_batch_size: 4 input { name: "W" data_type: TYPE_FP32 dims: 2 optional: true }
		input { name: "IN" data_type: TYPE_FP32 dims: 2 } output { name: "OUT" data_type: TYPE_FP32 dims: 2 }`)
	row := func(index int, values ...float32) arg {
		return arg{index, tensor.FP32, tensor.Shape{int64(len(values) / 2), 2}, [][]byte{onnxtest.Floats(values...)}}
	}
	for range 2 {
		for _, c := range []struct {
			a, b         *infer.Request
			first, other []byte
		}{
			{request(1, row(1, 1, 2)), request(2, row(1, 3, 4, 5, 6)), onnxtest.Floats(11, 22), onnxtest.Floats(13, 24, 15, 26)},
			{request(1, row(0, 100, 200), row(1, 1, 2)), request(1, row(0, 300, 400), row(1, 3, 4)), onnxtest.Floats(101, 202), onnxtest.Floats(303, 404)},
		} {
			if _, err := run(in, c.a, c.b); err != nil || c.a.Err != nil || c.b.Err != nil {
				t.Fatal(err, c.a.Err, c.b.Err)
			}
			if got, other := result(t, c.a, "OUT").Data, result(t, c.b, "OUT").Data; string(got) != string(c.first) || string(other) != string(c.other) {
				t.Errorf("got %x and %x, want %x and %x", got, other, c.first, c.other)
			}
			c.a.Release()
			c.b.Release()
		}
	}
	with, without := request(1, row(0, 100, 200), row(1, 1, 2)), request(1, row(1, 1, 2))
	for _, pair := range [][]*infer.Request{{with, without}, {without, with}} {
		if _, err := run(in, pair...); err == nil || !strings.Contains(err.Error(), "BUG") {
			t.Errorf("one with and one without: got %v, want the batch refused", err)
		}
	}
	with.Release()
	without.Release()
}

// TestABatchThatDoesNotFitItsTensorsIsRefused gives an instance batches that
// neither engine nor scheduler makes, after one that fills its memory: it must
// not read or write beyond a tensor, nor show what an earlier client sent.
func TestABatchThatDoesNotFitItsTensorsIsRefused(t *testing.T) {
	numbers := func(rows, index int, shape tensor.Shape, values ...float32) *infer.Request {
		return request(rows, arg{index, tensor.FP32, shape, [][]byte{onnxtest.Floats(values...)}})
	}
	words := func(rows, index int, shape tensor.Shape, data string) *infer.Request {
		return request(rows, arg{index, tensor.Bytes, shape, [][]byte{[]byte(data)}})
	}
	const a, b = "\x01\x00\x00\x00a", "\x02\x00\x00\x00bb"
	shape := tensor.Shape{1, 2}
	for _, c := range []struct {
		name string
		typ  tensor.Type
		good func() *infer.Request
		odd  *infer.Request
	}{
		{"another shape", tensor.FP32, func() *infer.Request { return numbers(1, 0, shape, 1, 2) }, numbers(1, 0, tensor.Shape{1, 3}, 1, 2, 3)},
		{"too few bytes", tensor.FP32, func() *infer.Request { return numbers(1, 0, shape, 1, 2) }, numbers(1, 0, shape, 1)},
		{"too few rows", tensor.FP32, func() *infer.Request { return numbers(1, 0, shape, 1, 2) }, numbers(2, 0, shape, 1, 2)},
		{"another input", tensor.FP32, func() *infer.Request { return numbers(1, 0, shape, 1, 2) }, numbers(1, 5, shape, 1, 2)},
		{"too many strings", tensor.Bytes, func() *infer.Request { return words(1, 0, shape, a+b) }, words(1, 0, shape, a+b+a)},
		{"too few strings", tensor.Bytes, func() *infer.Request { return words(1, 0, shape, a+b) }, words(1, 0, shape, a)},
		{"another input of strings", tensor.Bytes, func() *infer.Request { return words(1, 0, shape, a+b) }, words(1, 5, shape, a+b)},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := start(t, onnxtest.Identity(c.typ, "any"), `max_batch_size: 8`)
			for range 2 {
				x, y, z := c.good(), c.good(), c.good()
				if _, err := run(in, x, y); err != nil || !bytes.Equal(result(t, y, "OUT").Data, y.Inputs[0].Data.First) {
					t.Fatalf("good ones: got %v, want their answers", err)
				}
				if _, err := run(in, z, c.odd); err == nil || !strings.Contains(err.Error(), "BUG") {
					t.Errorf("got %v, want the batch refused", err)
				}
				for _, r := range []*infer.Request{x, y, z} {
					r.Release()
				}
			}
			c.odd.Release()
		})
	}
}

func TestABatchThatIsTooLargeIsRefused(t *testing.T) {
	in := start(t, onnxtest.Identity(tensor.FP32, 1), `max_batch_size: 2`)
	r := request(3, arg{0, tensor.FP32, tensor.Shape{3, 1}, [][]byte{onnxtest.Floats(1, 2, 3)}})
	defer r.Release()
	if _, err := run(in, r); err == nil || err.Error() != "batch size 3 for 'm', max allowed is 2" {
		t.Errorf("got %v, want batch size 3 for 'm', max allowed is 2", err)
	}
}

func TestManyShapesKeepABoundedNumberOfPlans(t *testing.T) {
	in := start(t, onnxtest.Identity(tensor.FP32, "any"), `max_batch_size: 2`)
	for width := range int64(3 * maxPlans) {
		data := make([]byte, 4*(width+1))
		data[0] = byte(width)
		r := request(1, arg{0, tensor.FP32, tensor.Shape{1, width + 1}, [][]byte{data}})
		if _, err := run(in, r); err != nil {
			t.Fatal(err)
		}
		if got := result(t, r, "OUT").Data; string(got) != string(data) {
			t.Errorf("width %d: got %x, want %x", width+1, got, data)
		}
		r.Release()
	}
	if got := len(in.plans); got != maxPlans {
		t.Errorf("got %d plans, want %d", got, maxPlans)
	}
}

func TestMemoryOfAHugeRequestIsGivenBack(t *testing.T) {
	in := start(t, onnxtest.Identity(tensor.Uint8, "any"), `max_batch_size: 2`)
	send := func(n int) {
		r := request(1, arg{0, tensor.Uint8, tensor.Shape{1, int64(n)}, [][]byte{make([]byte, n)}})
		if _, err := run(in, r); err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	send(8 << 20)
	if got := len(in.region.mem); got < 8<<20 {
		t.Fatalf("got an region of %d bytes, want 8 MiB", got)
	}
	for range 2 * lookAfter {
		send(10)
	}
	if got := len(in.region.mem); got > keptSize {
		t.Errorf("got an region of %d bytes after small requests only, want at most %d", got, keptSize)
	}
}

func TestAConstantOutputIsNotOverwrittenByTheNextRun(t *testing.T) {
	m := onnxtest.Model{
		Inputs:       []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{1}}},
		Outputs:      []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{1}}, {Name: "C", Type: tensor.FP32, Dims: []any{2}}},
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Relu", []string{"IN"}, "OUT"), onnxtest.NodeOf("Identity", []string{"K"}, "C")},
		Initializers: []onnxtest.Initializer{{Name: "K", Type: tensor.FP32, Dims: []int64{2}, Raw: onnxtest.Floats(3, 4)}},
	}
	in := start(t, m, ``)
	for range 3 {
		r := request(1, arg{0, tensor.FP32, tensor.Shape{1}, [][]byte{onnxtest.Floats(5)}})
		if _, err := run(in, r); err != nil {
			t.Fatal(err)
		}
		c := result(t, r, "C").Data
		if string(c) != string(onnxtest.Floats(3, 4)) {
			t.Errorf("got %x, want 3, 4", c)
		}
		clear(c) // what a careless encoder might do
		r.Release()
	}
}

func TestAModelWithoutInputsRuns(t *testing.T) {
	m := onnxtest.Model{
		Outputs:      []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{2}}},
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Neg", []string{"K"}, "OUT")},
		Initializers: []onnxtest.Initializer{{Name: "K", Type: tensor.FP32, Dims: []int64{2}, Raw: onnxtest.Floats(3, 4)}},
	}
	in := start(t, m, ``)
	r := request(1)
	defer r.Release()
	if _, err := run(in, r); err != nil {
		t.Fatal(err)
	}
	if got := result(t, r, "OUT").Data; string(got) != string(onnxtest.Floats(-3, -4)) {
		t.Errorf("got %x, want -3, -4", got)
	}
}
