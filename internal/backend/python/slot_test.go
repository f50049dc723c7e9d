package python

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// wide returns a request with one row of n numbers.
func wide(do string, n int, value byte) *infer.Request {
	r := play(do, 1, 0)
	r.Inputs[0].Shape = tensor.Shape{1, int64(n)}
	data := make([]byte, 4*n)
	for i := range data {
		data[i] = value
	}
	r.Inputs[0].Data = infer.Data{First: data}
	return r
}

func TestSlotsGrowWithTheBatches(t *testing.T) {
	in := startPlay(t, Options{})
	for i, n := range []int{3, 1 << 18, 1 << 20, 5, 9 << 20, 3 << 20, 3} {
		r := wide("", n, byte(i+1))
		if err := in.Run(batchOf(r)); err != nil {
			t.Fatal(err)
		}
		if r.Err != nil || !sameBytes(r.Response.Outputs[0].Data, byte(i+1), 4*n) {
			t.Errorf("%d numbers: got error %v or other bytes than were sent", n, r.Err)
		}
		r.Release()
	}
}

// Slots beyond those that are kept give their memory back, and with it what the
// worker had written there for the batches before.
func TestSlotsThatWereGivenBackAreUsedAgain(t *testing.T) {
	in := startInstance(t, newBackend(t, Options{}), "identity", &modelpb.ModelConfig{
		Name: "same", MaxBatchSize: 8,
		Input:  []*modelpb.ModelInput{{Name: "INPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{3}}},
		Output: []*modelpb.ModelOutput{{Name: "OUTPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{3}}},
	})
	for round := range 4 {
		var held []*infer.Request
		for i := range 2 * maxIdle {
			r := wide("", 3, byte(10*round+i+1))
			r.Inputs = r.Inputs[:1]
			r.Inputs[0].Name = "INPUT0"
			if err := in.Run(batchOf(r)); err != nil {
				t.Fatalf("round %d, batch %d: %v", round, i, err)
			}
			held = append(held, r)
		}
		for i, r := range held {
			if r.Err != nil || !sameBytes(r.Response.Outputs[0].Data, byte(10*round+i+1), 12) {
				t.Errorf("round %d, batch %d: got error %v or other bytes than were sent", round, i, r.Err)
			}
			r.Release()
		}
	}
}

func sameBytes(b []byte, value byte, n int) bool {
	for _, x := range b {
		if x != value {
			return false
		}
	}
	return len(b) == n
}

func TestResponsesOutliveLaterBatchesAndTheirInstance(t *testing.T) {
	b := newBackend(t, Options{})
	m, err := open(t, b, "play", playConfig())
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Start(t.Context(), backend.Placement{Name: "play_0_0", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	var held []*infer.Request
	for i := range 10 {
		r := wide("", 1<<16, byte(i+1))
		if err := in.Run(batchOf(r)); err != nil {
			t.Fatal(err)
		}
		held = append(held, r)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for i, r := range held {
		if !sameBytes(r.Response.Outputs[0].Data, byte(i+1), 4<<16) {
			t.Errorf("response %d changed while it was held", i)
		}
		r.Release()
	}
}

func TestABatchIsGatheredWhileAnotherRuns(t *testing.T) {
	in := startPlay(t, Options{})
	if got := in.Ahead(); got != 1 {
		t.Fatalf("ahead: got %d, want 1", got)
	}
	errs := make(chan error)
	for n := range 1 + in.Ahead() {
		go func() { errs <- runMany(in, n) }()
	}
	for range 1 + in.Ahead() {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// runMany runs batches that tell which they are, some of which end the worker.
func runMany(in backend.Instance, n int) error {
	for i := range 60 {
		do := ""
		if i == 30 {
			do = "die"
		}
		value := byte(100*n + i)
		r := wide(do, 1000, value)
		err := in.Run(batchOf(r))
		switch {
		case do == "die" && err == nil:
			return fmt.Errorf("run %d of %d: got no error of a worker that ended", i, n)
		case do == "" && err != nil:
			return fmt.Errorf("run %d of %d: %w", i, n, err)
		case do == "" && !sameBytes(r.Response.Outputs[0].Data, value, 4000):
			return fmt.Errorf("run %d of %d: got another's answer", i, n)
		}
		r.Release()
	}
	return nil
}

// things counts what a worker takes of this process: open files and mappings of
// shared memory.
func things(t *testing.T) (files, maps int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds), strings.Count(string(text), "memfd:shoal")
}

func TestNothingIsLeftOfInstancesAndDeadWorkers(t *testing.T) {
	b := newBackend(t, Options{})
	cycle := func() {
		in := startInstanceAlone(t, b)
		for _, do := range []string{"", "die", "", "keep"} {
			r := wide(do, 1<<19, 1)
			_ = in.Run(batchOf(r)) // one of them fails
			r.Release()
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	files, maps := things(t)
	goroutines := runtime.NumGoroutine()
	for range 5 {
		cycle()
	}
	eventually(t, 10*time.Second, func() error {
		f, m := things(t)
		if g := runtime.NumGoroutine(); f > files || m > maps || g > goroutines {
			return fmt.Errorf("got %d files, %d mappings, %d goroutines, want %d, %d, %d", f, m, g, files, maps, goroutines)
		}
		return nil
	})
}

func startInstanceAlone(t *testing.T, b *Backend) backend.Instance {
	t.Helper()
	m, err := open(t, b, "play", playConfig())
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Start(t.Context(), backend.Placement{Name: "play_0_0", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestRequestsOfDifferentShapesShareABatch(t *testing.T) {
	cfg := &modelpb.ModelConfig{
		Name: "mixed", MaxBatchSize: 8,
		Input: []*modelpb.ModelInput{
			{Name: "INPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{-1}, AllowRaggedBatch: true},
			{Name: "INPUT1", DataType: modelpb.DataType_TYPE_STRING, Dims: []int64{-1}, Optional: true, AllowRaggedBatch: true},
		},
		Output: []*modelpb.ModelOutput{
			{Name: "OUTPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{-1}},
			{Name: "OUTPUT1", DataType: modelpb.DataType_TYPE_STRING, Dims: []int64{-1}},
		},
	}
	in := startInstance(t, newBackend(t, Options{}), "identity", cfg)
	var requests []*infer.Request
	for i, n := range []int{3, 1, 4} {
		r := wide("", n, byte(i+1))
		r.Inputs[0].Name = "INPUT0"
		if i != 1 {
			texts := r.AddInput()
			texts.Name, texts.Index, texts.Type, texts.Shape = "INPUT1", 1, tensor.Bytes, tensor.Shape{1, int64(i + 1)}
			for range i + 1 {
				texts.Data.First = append(texts.Data.First, 2, 0, 0, 0, 'a', byte('a'+i))
			}
		}
		requests = append(requests, r)
	}
	if err := in.Run(batchOf(requests...)); err != nil {
		t.Fatal(err)
	}
	for i, r := range requests {
		if r.Err != nil || len(r.Response.Outputs) != len(r.Inputs) {
			t.Errorf("request %d: got error %v and %d outputs, want %d", i, r.Err, len(r.Response.Outputs), len(r.Inputs))
			continue
		}
		for j, out := range r.Response.Outputs {
			if string(out.Data) != string(r.Inputs[j].Data.First) || !out.Shape.Equal(r.Inputs[j].Shape) {
				t.Errorf("request %d: got %s %s %q, want %s %q", i, out.Name, out.Shape, out.Data, r.Inputs[j].Shape, r.Inputs[j].Data.First)
			}
		}
		r.Release()
	}
}

func TestReshapeIsTheHandlersShape(t *testing.T) {
	cfg := &modelpb.ModelConfig{
		Name: "reshaped", MaxBatchSize: 4,
		Input:  []*modelpb.ModelInput{{Name: "INPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{6}, Reshape: &modelpb.ModelTensorReshape{Shape: []int64{2, 3}}}},
		Output: []*modelpb.ModelOutput{{Name: "OUTPUT0", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{3, 2}, Reshape: &modelpb.ModelTensorReshape{Shape: []int64{2, 3}}}},
	}
	in := startInstance(t, newBackend(t, Options{}), "identity", cfg)
	r := wide("", 6, 1)
	r.Inputs[0].Name = "INPUT0"
	defer r.Release()
	if err := in.Run(batchOf(r)); err != nil {
		t.Fatal(err)
	}
	if r.Err != nil || !r.Response.Outputs[0].Shape.Equal(tensor.Shape{1, 3, 2}) {
		t.Errorf("got error %v and %v, want shape [1,3,2]", r.Err, r.Response.Outputs)
	}
}
