package onnx

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/tensor"
)

// resident returns the memory that the process has, after Go gave back what it
// does not need.
func resident(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("the system does not tell: %v", err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		t.Fatal("got no VmRSS, want one")
	}
	n, err := strconv.Atoi(string(fields[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// manyShapes returns an instance with every kind of tensor in it: ragged and
// with rows, made by us, numbers and strings, bound and the library's own.
func manyShapes(t *testing.T) *instance {
	strings := onnxtest.Tensor{Name: "WORDS", Type: tensor.Bytes, Dims: []any{"N", "w"}}
	again := strings
	again.Name = "AGAIN"
	return start(t, onnxtest.Model{
		Inputs: []onnxtest.Tensor{
			{Name: "IN", Type: tensor.FP32, Dims: []any{"T"}},
			strings,
			{Name: "ROW", Type: tensor.FP32, Dims: []any{"N", 2}},
			{Name: "ENDS", Type: tensor.Int32, Dims: []any{"n"}},
		},
		Outputs: []onnxtest.Tensor{
			{Name: "OUT", Type: tensor.FP32, Dims: []any{"T"}}, again, {Name: "NEG", Type: tensor.FP32, Dims: []any{"N", 2}},
		},
		Nodes: []onnxtest.Node{
			onnxtest.NodeOf("Relu", []string{"IN"}, "OUT"), onnxtest.NodeOf("Identity", []string{"WORDS"}, "AGAIN"), onnxtest.NodeOf("Neg", []string{"ROW"}, "NEG"),
		},
	}, `max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
		input { name: "WORDS" data_type: TYPE_STRING dims: -1 } input { name: "ROW" data_type: TYPE_FP32 dims: 2 }
		batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_INT32 source_input: "IN" }
		output { name: "OUT" data_type: TYPE_FP32 dims: -1 } output { name: "AGAIN" data_type: TYPE_STRING dims: -1 } output { name: "NEG" data_type: TYPE_FP32 dims: 2 }`+scatterOut)
}

// TestRunsOfManyShapesKeepMemoryFlat would see 150 bytes that each run leaves
// behind.
func TestRunsOfManyShapesKeepMemoryFlat(t *testing.T) {
	if race.Enabled || testing.Short() {
		t.Skip("the race detector has memory of its own")
	}
	in := manyShapes(t)
	numbers, words := make([]byte, 4*200), make([][]byte, 12)
	for n := range words {
		for w := range n {
			words[n] = binary.LittleEndian.AppendUint32(words[n], uint32(17*w))
			words[n] = append(words[n], make([]byte, 17*w)...)
		}
	}
	ask := func(width, n int) *infer.Request {
		return request(1,
			arg{0, tensor.FP32, tensor.Shape{1, int64(width)}, [][]byte{numbers[:4*width]}},
			arg{1, tensor.Bytes, tensor.Shape{1, int64(n)}, [][]byte{words[n]}},
			arg{2, tensor.FP32, tensor.Shape{1, 2}, [][]byte{numbers[:8]}})
	}
	const runs, warm, allowed = 20_000, 6_000, 2 << 20
	begin := 0
	for i := range runs {
		if i == warm {
			begin = resident(t)
		}
		a, b := ask(i%197, i%len(words)), ask(i%89, i%len(words))
		if _, err := run(in, a, b); err != nil || a.Err != nil || b.Err != nil {
			t.Fatal(err, a.Err, b.Err)
		}
		if got := result(t, b, "AGAIN"); !bytes.Equal(got.Data, words[i%len(words)]) || len(result(t, b, "OUT").Data) != 4*(i%89) {
			t.Fatalf("run %d: got %d bytes of strings, want the %d that were sent", i, len(got.Data), len(words[i%len(words)]))
		}
		a.Release()
		b.Release()
	}
	grown := resident(t) - begin
	t.Logf("%d runs: %d bytes more, from %d", runs-warm, grown, begin)
	if grown > allowed {
		t.Errorf("got %d bytes more after %d runs, want at most %d", grown, runs-warm, allowed)
	}
}

func TestMemoryOfLongStringsIsGivenBack(t *testing.T) {
	in := start(t, onnxtest.Identity(tensor.Bytes, "any"), `max_batch_size: 2`)
	send := func(lengths ...int) {
		t.Helper()
		var data []byte
		for _, n := range lengths {
			data = append(binary.LittleEndian.AppendUint32(data, uint32(n)), make([]byte, n)...)
		}
		half := len(data) / 2
		r := request(1, arg{0, tensor.Bytes, tensor.Shape{1, int64(len(lengths))}, [][]byte{data[:half], data[half:]}})
		defer r.Release()
		if _, err := run(in, r); err != nil || !bytes.Equal(result(t, r, "OUT").Data, data) {
			t.Fatalf("%v: got %v and something else than was sent", lengths, err)
		}
	}
	held := func() (n int) {
		for _, p := range in.plans {
			elements, _ := tensor.Shape(p.key[1:]).Elements() // the key of one input: its rank and shape
			n += max(p.text, stringSize*int(elements))
		}
		return n
	}
	send(1, 2)
	if held() == 0 {
		t.Error("got no tensor of strings, want a short one to be kept")
	}
	for i := range 10 {
		send(make([]int, 40_000+i)...) // many empty ones take memory too
		send(4<<20, i)
	}
	// A string stays as long as it once was, so short runs add up.
	for i := range 100 {
		lengths := make([]int, 100)
		lengths[i] = 100 << 10
		send(lengths...)
	}
	if got := held(); got > 2*keptSize {
		t.Errorf("got tensors of strings that may hold %d bytes, want at most %d", got, 2*keptSize)
	}
}
