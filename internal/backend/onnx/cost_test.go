package onnx

import (
	"testing"
	"time"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/tensor"
)

// addBatch returns an instance of the add model and a request of 8 rows.
func addBatch(t testing.TB) (*instance, *infer.Batch) {
	in := start(t, onnxtest.AddSub(tensor.FP32, 16), `max_batch_size: 8 parameters { key: "intra_op_thread_count" value { string_value: "1" } }`)
	shape := tensor.Shape{8, 16}
	data := [][]byte{make([]byte, 8*16*4)}
	r := request(8, arg{0, tensor.FP32, shape, data}, arg{1, tensor.FP32, shape, data})
	return in, &infer.Batch{Requests: []*infer.Request{r}, Rows: 8}
}

// once runs a batch of one request and gives the answer back.
func once(t testing.TB, in *instance, b *infer.Batch) {
	if err := in.Run(b); err != nil || b.Requests[0].Err != nil {
		t.Fatal(err, b.Requests[0].Err)
	}
	b.Requests[0].Response.Release()
}

func TestRunAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	text := [][]byte{{1, 0, 0, 0, 'a', 0, 0, 0, 0}}
	for _, c := range []struct {
		name  string
		model onnxtest.Model
		args  []arg
	}{
		{"outputs of known shape", onnxtest.AddSub(tensor.FP32, 2), []arg{
			{0, tensor.FP32, tensor.Shape{1, 2}, [][]byte{make([]byte, 8)}}, {1, tensor.FP32, tensor.Shape{1, 2}, [][]byte{make([]byte, 8)}},
		}},
		{"an output that ONNX Runtime allocates", onnxtest.Identity(tensor.FP32, "any"), []arg{{0, tensor.FP32, tensor.Shape{1, 2}, [][]byte{make([]byte, 8)}}}},
		{"strings", onnxtest.Identity(tensor.Bytes, 2), []arg{{0, tensor.Bytes, tensor.Shape{1, 2}, text}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := start(t, c.model, ``)
			r := request(1, c.args...)
			defer r.Release()
			b := &infer.Batch{Requests: []*infer.Request{r}, Rows: 1}
			once(t, in, b) // makes what is kept
			if got := testing.AllocsPerRun(200, func() { once(t, in, b) }); got != 0 {
				t.Errorf("got %v allocations per run, want 0", got)
			}
		})
	}
}

// bare returns a function that does the same work as a run of in, with
// arguments that are ready: the inputs are copied to where they must lie, and
// the library is called.
func bare(t testing.TB, in *instance, b *infer.Batch) func() {
	once(t, in, b)
	p, s := in.plans[0], in.slots.take()
	set, err := s.setFor(8)
	if err != nil {
		t.Fatal(err)
	}
	c := ort.NewCall(in.use.session, nil)
	data := b.Requests[0].Inputs[0].Data.First
	return func() {
		for i := range p.inputs {
			copy(in.region.mem[p.inputs[i].offset:], data)
		}
		if err := c.Run(p.names, p.values, in.model.outputNames, set.values); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkRunBesideBareCall holds the layer to its budget: a run of a tiny model
// through it, with copies and bookkeeping, takes at most 1.3 times the library's
// call alone. It compares the fastest of interleaved rounds, because a busy
// machine only ever adds time.
func BenchmarkRunBesideBareCall(b *testing.B) {
	in, batch := addBatch(b)
	call := bare(b, in, batch)
	const runs, budget = 100, 1.3 // a round is shorter than a time slice
	ours, floor := time.Duration(1<<62), time.Duration(1<<62)
	for b.Loop() {
		floor = min(floor, timed(runs, call))
		ours = min(ours, timed(runs, func() { once(b, in, batch) }))
	}
	ratio := float64(ours) / float64(floor)
	b.ReportMetric(ratio, "x-bare")
	if b.N >= 300 && ratio > budget {
		b.Errorf("got %.2f times the bare call, want at most %.2f", ratio, budget)
	}
}

func timed(n int, f func()) time.Duration {
	start := time.Now()
	for range n {
		f()
	}
	return time.Since(start)
}

func BenchmarkRun(b *testing.B) {
	in, batch := addBatch(b)
	b.ReportAllocs()
	for b.Loop() {
		once(b, in, batch)
	}
}

func BenchmarkBareCall(b *testing.B) {
	in, batch := addBatch(b)
	call := bare(b, in, batch)
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}
