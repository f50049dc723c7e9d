package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
	"shoal/internal/backend/cuda/cudatest"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// gpuBackend returns a backend for GPUs that are not there: ONNX Runtime runs
// on the CPU, with the devices' memory.
func gpuBackend(t testing.TB, devices cudatest.Devices) (*Backend, *strings.Builder) {
	b, log := newBackend(t, nil)
	b.gpu = GPU{Devices: func() (cuda.Devices, error) { return devices, nil }}
	return b, log
}

const onGPU = `max_batch_size: 8 instance_group { name: "m_0" kind: KIND_GPU count: 1 gpus: 0 }`

func startOnGPU(t testing.TB, b *Backend, m onnxtest.Model, text string) backend.Instance {
	t.Helper()
	l, err := load(t, b, write(t, m), config(t, text))
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Start(t.Context(), backend.Placement{Name: "m_0_0", Kind: modelpb.ModelInstanceGroup_KIND_GPU, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// scaled returns a request with random values for AddSub, and
// the values.
func scaled(rng *rand.Rand, rows, width int) (*infer.Request, [][]float32) {
	a, b := make([]float32, rows*width), make([]float32, rows*width)
	for i := range a {
		a[i], b[i] = float32(rng.IntN(1000)), float32(rng.IntN(1000))
	}
	shape := tensor.Shape{int64(rows), int64(width)}
	return request(rows, arg{0, tensor.FP32, shape, [][]byte{onnxtest.Floats(a...)}}, arg{1, tensor.FP32, shape, [][]byte{onnxtest.Floats(b...)}}), [][]float32{a, b}
}

func checkAddSub(t testing.TB, r *infer.Request, in [][]float32) {
	t.Helper()
	for name, want := range map[string]func(i int) float32{
		"OUTPUT0": func(i int) float32 { return in[0][i] + in[1][i] },
		"OUTPUT1": func(i int) float32 { return in[0][i] - in[1][i] },
	} {
		out := result(t, r, name)
		if len(out.Data) != 4*len(in[0]) || out.Shape[0] != int64(r.Rows) {
			t.Fatalf("%s: got %d bytes of shape %v for %d rows, want %d", name, len(out.Data), out.Shape, r.Rows, 4*len(in[0]))
		}
		for i := range in[0] {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(out.Data[4*i:])); got != want(i) {
				t.Fatalf("%s[%d]: got %v, want %v", name, i, got, want(i))
			}
		}
	}
}

func TestBatchesOnAGPUGetTheirOwnRows(t *testing.T) {
	for _, c := range []struct {
		name   string
		config string
		width  int
	}{
		{"graphs", onGPU, 3},
		{"no graphs", onGPU + ` parameters { key: "enable_cuda_graph" value { string_value: "0" } }`, 3},
		{"large outputs", onGPU, 17000},
		{"one graph", onGPU + ` parameters { key: "cuda_graph_batch_sizes" value { string_value: "3" } }`, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices := cudatest.New(1)
			b, log := gpuBackend(t, devices)
			in := startOnGPU(t, b, onnxtest.AddSub(tensor.FP32, c.width), c.config)
			var wg sync.WaitGroup
			for caller := range inputSlots {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(caller)))
					for range 20 {
						var batch infer.Batch
						var sent [][][]float32
						for range 1 + rng.IntN(3) {
							r, values := scaled(rng, 1+rng.IntN(2), c.width)
							batch.Requests, batch.Rows = append(batch.Requests, r), batch.Rows+r.Rows
							sent = append(sent, values)
						}
						if err := in.Run(&batch); err != nil {
							t.Error(err)
							return
						}
						for i, r := range batch.Requests {
							checkAddSub(t, r, sent[i])
							r.Release()
						}
					}
				})
			}
			wg.Wait()
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			if left := devices[0].Left(); left != "" {
				t.Errorf("got left on the device: %s, want nothing", left)
			}
			if strings.Contains(log.String(), "without CUDA graphs") {
				t.Errorf("got %s, want no complaint", log)
			}
		})
	}
}

func TestTheOrderOfCallsOnAGPU(t *testing.T) {
	devices := cudatest.New(1)
	b, _ := gpuBackend(t, devices)
	in := startOnGPU(t, b, onnxtest.AddSub(tensor.FP32, 16), onGPU+` parameters { key: "cuda_graph_batch_sizes" value { string_value: "1,2,4" } }`)
	defer in.Close()
	if use, ok := in.(backend.OnGPU).GPU(); !ok || use.ID != 0 || use.UUID != "GPU-0" || use.Bytes < 3*2*8*16*4 {
		t.Errorf("got %+v, %v, want GPU 0 with the inputs of three batches at least", use, ok)
	}
	if ahead := in.(backend.Ahead).Ahead(); ahead != 1 {
		t.Errorf("got %d batches ahead, want 1", ahead)
	}
	start := strings.Join(devices[0].Calls(), "\n")
	if got := strings.Count(start, "Capture"); got != 4 {
		t.Errorf("got %d graphs, want those of 1, 2, 4 and 8 rows, in\n%s", got, start)
	}
	check := func(name string, want ...string) {
		t.Helper()
		r, values := scaled(rand.New(rand.NewPCG(1, 1)), 3, 16)
		defer r.Release()
		if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}, Rows: 3}); err != nil {
			t.Fatal(err)
		}
		checkAddSub(t, r, values)
		got := slices.DeleteFunc(devices[0].Calls(), func(c string) bool { return strings.HasPrefix(c, "AllocHost") })
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	check("a batch without another", "CopyIn s1 192", "CopyIn s1 192", // straight to the model's inputs
		"Zero s1 64", "Zero s1 64", // three rows become four
		"Launch s1", "CopyOut s1 192", "CopyOut s1 192", "Record e6 s1", // three rows come back
		"Synchronize e6")
	other := <-in.(*gpuInstance).free                                // of a batch that computes
	check("a batch beside another", "CopyIn s2 384", "Record e4 s2", // both inputs at once, on the stream for it
		"Wait s1 e4", "Copy s1 192", "Copy s1 192", "Zero s1 64", "Zero s1 64",
		"Launch s1", "CopyOut s1 192", "CopyOut s1 192", "Record e6 s1",
		"Synchronize e6")
	in.(*gpuInstance).free <- other
}

// TestARequestInPinnedMemoryIsNotCopiedOnTheHost: what was received into memory
// that the GPU reads stays there.
func TestARequestInPinnedMemoryIsNotCopiedOnTheHost(t *testing.T) {
	devices := cudatest.New(1)
	b, _ := gpuBackend(t, devices)
	b.options.Receive = inflight.UseDirect
	instance := startOnGPU(t, b, onnxtest.AddSub(tensor.FP32, 16), onGPU)
	defer instance.Close()
	in := instance.(*gpuInstance)
	received := inflight.NewPool(nil).Get(256 << 10)
	for _, c := range []struct {
		name            string
		beside, private bool
		requests        int
		copied          bool
	}{
		{"alone", false, true, 1, false},
		{"beside another batch", true, true, 1, false},
		{"with another request", false, true, 2, true},
		{"in memory that others can write", false, false, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.beside {
				other := <-in.free
				defer func() { in.free <- other }()
			}
			for _, s := range in.all {
				for i := range s.region.mem {
					s.region.mem[i] = 0xee
				}
			}
			batch, rest := infer.Batch{Rows: 3 * c.requests}, *received
			var sent [][][]float32
			for n := range c.requests {
				r, values := scaled(rand.New(rand.NewPCG(1, uint64(n))), 3, 16)
				for i := range r.Inputs {
					d := &r.Inputs[i].Data
					size := copy(rest, d.First)
					d.First, d.Private, rest = rest[:size], c.private, rest[size:]
				}
				batch.Requests, sent = append(batch.Requests, r), append(sent, values)
			}
			if err := in.Run(&batch); err != nil {
				t.Fatal(err)
			}
			for i, r := range batch.Requests {
				checkAddSub(t, r, sent[i])
				r.Release()
			}
			copied := slices.ContainsFunc(in.all, func(s *gpuSlot) bool {
				return slices.ContainsFunc(s.region.mem, func(b byte) bool { return b != 0xee })
			})
			if copied != c.copied {
				t.Errorf("got copied on the host %v, want %v", copied, c.copied)
			}
		})
	}
}

func TestAModelMayWantNoBatchAhead(t *testing.T) {
	b, _ := gpuBackend(t, cudatest.New(1))
	in := startOnGPU(t, b, onnxtest.AddSub(tensor.FP32, 4), onGPU+` parameters { key: "overlap" value { string_value: "0" } }`)
	defer in.Close()
	if ahead := in.(backend.Ahead).Ahead(); ahead != 0 {
		t.Errorf("got %d batches ahead, want none", ahead)
	}
}

func TestAModelThatCannotBeRecordedRunsWithoutGraphs(t *testing.T) {
	devices := cudatest.New(1)
	devices[0].Fail = func(call string) error {
		if call == "Capture" {
			return errors.New("operation not permitted when stream is capturing")
		}
		return nil
	}
	b, log := gpuBackend(t, devices)
	in := startOnGPU(t, b, onnxtest.AddSub(tensor.FP32, 4), onGPU)
	defer in.Close()
	r, values := scaled(rand.New(rand.NewPCG(1, 1)), 3, 4)
	defer r.Release()
	if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}, Rows: 3}); err != nil {
		t.Fatal(err)
	}
	checkAddSub(t, r, values)
	if got := strings.Count(log.String(), "runs without CUDA graphs"); got != 1 || !strings.Contains(log.String(), "not permitted") {
		t.Errorf("got %s, want one line with the reason", log)
	}
}

func TestInputsOfTheProcessorAreNotRecorded(t *testing.T) {
	for _, c := range []struct {
		name   string
		typ    tensor.Type
		on     []string
		err    error
		graphs bool
		want   string
	}{
		{"all on the device", tensor.FP32, nil, nil, true, ""},
		{"an input on the host", tensor.FP32, []string{"INPUT1"}, nil, false, "the processor uses 'INPUT1'"},
		{"not known", tensor.FP32, nil, ort.ErrUnknown, true, ""},
		{"not known, whole numbers", tensor.Int32, nil, ort.ErrUnknown, false, "'INPUT0', 'INPUT1'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices := cudatest.New(1)
			b, log := gpuBackend(t, devices)
			b.gpu.OnHost = func(*ort.Session) ([]string, error) { return c.on, c.err }
			in := startOnGPU(t, b, onnxtest.AddSub(c.typ, 4), onGPU)
			defer in.Close()
			if got := strings.Contains(strings.Join(devices[0].Calls(), "\n"), "Capture"); got != c.graphs {
				t.Errorf("got graphs %v, want %v", got, c.graphs)
			}
			if !strings.Contains(log.String(), c.want) {
				t.Errorf("got %s, want %q in it", log, c.want)
			}
		})
	}
}

func TestOutOfGPUMemory(t *testing.T) {
	devices := cudatest.New(1)
	b, _ := gpuBackend(t, devices)
	m, err := load(t, b, write(t, onnxtest.AddSub(tensor.FP32, 4)), config(t, onGPU))
	if err != nil {
		t.Fatal(err)
	}
	place := backend.Placement{Name: "m_0_0", Kind: modelpb.ModelInstanceGroup_KIND_GPU, Count: 1}
	fail := ""
	devices[0].Fail = func(call string) error {
		if call == fail {
			return fmt.Errorf("reserve 10 bytes of GPU 0: %w", cudatest.OutOfMemory)
		}
		return nil
	}
	fail = "Alloc"
	_, err = m.Start(t.Context(), place)
	if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(status.Public(err), "the GPU has 1 MB free of 1024 MB") {
		t.Errorf("at load: got %v, want what the GPU has free", err)
	}
	if left := devices[0].Left(); left != "" {
		t.Errorf("a failed load: got left on the device: %s, want nothing", left)
	}
	fail = ""
	in, err := m.Start(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, call := range []string{"CopyIn", "Launch", "CopyOut", ""} { // the instance lives on
		fail = call
		r, values := scaled(rand.New(rand.NewPCG(1, 1)), 2, 4)
		err := in.Run(&infer.Batch{Requests: []*infer.Request{r}, Rows: 2})
		if call == "" {
			if err != nil {
				t.Fatal(err)
			}
			checkAddSub(t, r, values)
		} else if status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%s fails: got %v, want that the batch fails for a lack of memory", call, err)
		}
		r.Release()
	}
}

func TestAGPUBeyondItsLimitTakesNoMoreModels(t *testing.T) {
	b, _ := gpuBackend(t, cudatest.New(1)) // of 1 GiB all but 1 MiB is in use
	b.options.LoadLimits = map[int]float64{0: 0.9}
	m, err := load(t, b, write(t, onnxtest.AddSub(tensor.FP32, 4)), config(t, onGPU))
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Start(t.Context(), backend.Placement{Name: "m_0_0", Kind: modelpb.ModelInstanceGroup_KIND_GPU, Count: 1})
	if want := "memory limit set for KIND_GPU [0] has exceeded, model loading is rejected: 100 % of it are in use, --model-load-gpu-limit allows 90 %"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAGPUNumberThatDoesNotExist(t *testing.T) {
	b, _ := gpuBackend(t, cudatest.New(2))
	m, err := load(t, b, write(t, onnxtest.AddSub(tensor.FP32, 4)), config(t, onGPU))
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Start(t.Context(), backend.Placement{Name: "m_0_0", Kind: modelpb.ModelInstanceGroup_KIND_GPU, GPU: 7, Count: 1})
	if err == nil || !strings.Contains(err.Error(), "there is no GPU 7; the driver has 2") {
		t.Errorf("got %v, want that there is no such GPU", err)
	}
}

// TestModelsWithOpenShapesRunOnAGPU has ONNX Runtime copy: only the host's
// memory is pinned.
func TestModelsWithOpenShapesRunOnAGPU(t *testing.T) {
	devices := cudatest.New(1)
	b, _ := gpuBackend(t, devices)
	in := startOnGPU(t, b, onnxtest.Identity(tensor.FP32, "any"), onGPU)
	r := request(2, arg{0, tensor.FP32, tensor.Shape{2, 3}, [][]byte{onnxtest.Floats(1, 2, 3, 4, 5, 6)}})
	if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}, Rows: 2}); err != nil {
		t.Fatal(err)
	}
	if out := result(t, r, "OUT"); string(out.Data) != string(onnxtest.Floats(1, 2, 3, 4, 5, 6)) {
		t.Errorf("got %x, want the input", out.Data)
	}
	if calls := devices[0].Calls(); !slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "AllocHost") }) {
		t.Errorf("got %q, want pinned memory", calls)
	}
	r.Release()
	in.Close()
	if left := devices[0].Left(); left != "" {
		t.Errorf("got left on the device: %s, want nothing", left)
	}
}

func TestASizeIsAddedWherePaddingCostsMost(t *testing.T) {
	in := &gpuInstance{sizes: []*graphSize{
		{rows: 1, took: 100}, {rows: 2, took: 100}, {rows: 4, took: 110}, {rows: 8, took: 120}, {rows: 16, took: 200}, {rows: 32, took: 400},
	}}
	if got := in.between(); got != 24 {
		t.Errorf("got %d, want the middle of the steepest step", got)
	}
	for _, s := range in.sizes[4:] {
		s.took = 130
	}
	if got := in.between(); got != 0 {
		t.Errorf("got %d, want none: padding costs little", got)
	}
}

func TestGraphSizes(t *testing.T) {
	for _, c := range []struct {
		limit  int
		listed []int
		want   []int
	}{
		{0, nil, []int{1}},
		{1, nil, []int{1}},
		{8, nil, []int{1, 2, 4, 8}},
		{12, nil, []int{1, 2, 4, 8, 12}},
		{12, []int{6, 3, 40}, []int{3, 6, 12}},
	} {
		if got := graphSizes(c.limit, c.listed); !slices.Equal(got, c.want) {
			t.Errorf("%d with %v: got %v, want %v", c.limit, c.listed, got, c.want)
		}
	}
}
