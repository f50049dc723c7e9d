package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// startONNX starts an engine that serves one model, "m".
func startONNX(t *testing.T, m onnxtest.Model, config string) *Engine {
	t.Helper()
	path := onnxtest.Library(t)
	e, err := Start(t.Context(), Options{
		Name: "test", Version: "1", LoadThreads: 1, Log: slog.New(slog.DiscardHandler),
		Repositories: []string{repo(t, map[string]string{"m/config.pbtxt": config, "m/1/model.onnx": string(m.Marshal())})},
		Backends:     []backend.Backend{onnx.New(onnx.Options{Library: func() (string, error) { return path, nil }})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

// together sends the requests at the same time and returns their errors.
func together(t *testing.T, e *Engine, requests ...*infer.Request) []error {
	t.Helper()
	v, err := e.find("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { errs[i] = v.Infer(t.Context(), r) })
	}
	wg.Wait()
	return errs
}

// executions returns how often the model ran and how many rows that were.
func executions(t *testing.T, e *Engine) (runs, rows uint64) {
	t.Helper()
	list, err := e.Statistics("m", infer.LatestVersion)
	if err != nil || len(list) != 1 {
		t.Fatalf("got %d statistics and %v, want one", len(list), err)
	}
	return list[0].ExecutionCount, list[0].InferenceCount
}

func answers(r *infer.Request) (text string) {
	for _, out := range r.Response.Outputs {
		text += fmt.Sprintf("%s %v %x ", out.Name, out.Shape, out.Data)
	}
	return text
}

// raggedSums returns a model that doubles its input and gives the sum of each
// request's part of it.
func raggedSums() onnxtest.Model {
	constant := func(name string, t tensor.Type, raw []byte) onnxtest.Initializer {
		return onnxtest.Initializer{Name: name, Type: t, Dims: []int64{1}, Raw: raw}
	}
	return onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"T"}}, {Name: "ENDS", Type: tensor.Int32, Dims: []any{"E"}}},
		Outputs: []onnxtest.Tensor{{Name: "TWICE", Type: tensor.FP32, Dims: []any{"T"}}, {Name: "SUM", Type: tensor.FP32, Dims: []any{"n"}}},
		Initializers: []onnxtest.Initializer{
			constant("zero", tensor.FP32, onnxtest.Floats(0)),
			constant("first", tensor.Int64, onnxtest.Int64s(0)), constant("second", tensor.Int64, onnxtest.Int64s(1)),
			constant("last", tensor.Int64, onnxtest.Int64s(-1)), constant("end", tensor.Int64, onnxtest.Int64s(1<<62)),
		},
		Nodes: []onnxtest.Node{
			onnxtest.NodeOf("Add", []string{"IN", "IN"}, "TWICE"),
			onnxtest.NodeOf("CumSum", []string{"IN", "first"}, "running"),
			{Op: "Concat", Inputs: []string{"zero", "running"}, Outputs: []string{"totals"}, Attrs: []onnxtest.Attr{{Name: "axis", Value: int64(0)}}},
			onnxtest.NodeOf("Gather", []string{"totals", "ENDS"}, "bounds"),
			onnxtest.NodeOf("Slice", []string{"bounds", "second", "end"}, "upper"),
			onnxtest.NodeOf("Slice", []string{"bounds", "first", "last"}, "lower"),
			onnxtest.NodeOf("Sub", []string{"upper", "lower"}, "SUM"),
		},
	}
}

// waits has a batch of two rows go at once, and a request that stays alone only
// when the test has failed.
const waits = `max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 10000000 } `

func TestRequestsOfDifferentLengthsShareAnExecution(t *testing.T) {
	e := startONNX(t, raggedSums(), waits+`
		input { name: "IN" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
		batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO target_name: "ENDS" data_type: TYPE_INT32 source_input: "IN" }
		output { name: "TWICE" data_type: TYPE_FP32 dims: -1 } output { name: "SUM" data_type: TYPE_FP32 dims: 1 reshape { } }
		batch_output { target_name: "TWICE" source_input: "IN" }`)
	ask := func(values ...float32) *infer.Request {
		r := infer.NewRequest()
		r.Inputs = append(r.Inputs, in("IN", tensor.FP32, tensor.Shape{1, int64(len(values))}, string(onnxtest.Floats(values...))))
		return r
	}
	short, long := ask(1, 2), ask(10, 20, 30)
	for i, err := range together(t, e, short, long) {
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	for _, c := range []struct {
		r    *infer.Request
		want string
	}{
		{short, fmt.Sprintf("SUM [1,1] %x TWICE [1,2] %x ", onnxtest.Floats(3), onnxtest.Floats(2, 4))},
		{long, fmt.Sprintf("SUM [1,1] %x TWICE [1,3] %x ", onnxtest.Floats(60), onnxtest.Floats(20, 40, 60))},
	} {
		if got := answers(c.r); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		c.r.Release()
	}
	if runs, rows := executions(t, e); runs != 1 || rows != 2 {
		t.Errorf("got %d executions of %d rows, want 1 of 2", runs, rows)
	}
}

func TestACutStringFailsItsRequestAlone(t *testing.T) {
	e := startONNX(t, onnxtest.Identity(tensor.Bytes, 1), waits+`input { name: "IN" data_type: TYPE_STRING dims: 1 } output { name: "OUT" data_type: TYPE_STRING dims: 1 }`)
	ask := func(data string) *infer.Request {
		r := infer.NewRequest()
		r.Inputs = append(r.Inputs, in("IN", tensor.Bytes, tensor.Shape{1, 1}, data))
		return r
	}
	whole, cut, last := ask(oneString), ask("\x09\x00\x00\x00ab"), ask(oneString)
	errs := together(t, e, whole, cut, last)
	for i, r := range []*infer.Request{whole, cut, last} {
		if got, want := answers(r), fmt.Sprintf("OUT [1,1] %x ", oneString); r != cut && (errs[i] != nil || got != want) {
			t.Errorf("good request %d: got %v %s, want %s", i, errs[i], got, want)
		}
	}
	const want = "incomplete string data for inference input 'IN', expecting string of length 9 but only 2 bytes available"
	if got := status.Public(errs[1]); got != want || status.CodeOf(errs[1]) != status.InvalidArgument {
		t.Errorf("the cut one: got %s, want %s", got, want)
	}
	if runs, _ := executions(t, e); runs != 1 {
		t.Errorf("got %d executions, want 1", runs)
	}
	v, err := e.find("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	if s := v.snapshot(); s.Success.Count != 2 || s.Fail.Count != 1 || s.Failures["BACKEND"] != 1 || cut.Outcome != infer.Failed {
		t.Errorf("got %d answered, %d failed, %v, outcome %d; want 2 and 1, as Triton's backends count it", s.Success.Count, s.Fail.Count, s.Failures, cut.Outcome)
	}
	whole.Release()
	cut.Release()
	last.Release()
}
