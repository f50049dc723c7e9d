package ort_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/tensor"
)

// open returns the library under test, or skips.
func open(t testing.TB) *ort.Library {
	t.Helper()
	l, err := ort.Open(onnxtest.Library(t), ort.Threads{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func session(t testing.TB, m onnxtest.Model, o ort.Options) *ort.Session {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, m.Marshal(), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := open(t).NewSession(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestLibraryNamesItsVersionAndProviders(t *testing.T) {
	l := open(t)
	if got := l.Version(); !strings.HasPrefix(got, "1.") {
		t.Errorf("version: got %q, want 1.something", got)
	}
	got, err := l.Providers()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 || got[len(got)-1] != "CPUExecutionProvider" {
		t.Errorf("providers: got %q, want the CPU's last", got)
	}
}

func TestOpenAgainReturnsTheSameLibrary(t *testing.T) {
	l := open(t)
	if got := open(t); got != l {
		t.Errorf("got another library, want the same")
	}
	if _, err := ort.Open("elsewhere.so", ort.Threads{}); err == nil || !strings.Contains(err.Error(), "already loaded") {
		t.Errorf("another path: got %v, want that a library is already loaded", err)
	}
}

func TestInspectSaysWhyAFileWillNotDo(t *testing.T) {
	if _, _, err := ort.Inspect(filepath.Join(t.TempDir(), "none.so")); err == nil {
		t.Error("missing file: got no error, want one")
	}
	path := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(path, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ort.Inspect(path); err == nil {
		t.Error("a text file: got no error, want one")
	}
}

func TestSessionDescribesItsTensors(t *testing.T) {
	m := onnxtest.Model{
		Inputs: []onnxtest.Tensor{
			{Name: "A", Type: tensor.FP32, Dims: []any{"N", 3}},
			{Name: "S", Type: tensor.Int64, Dims: []any{}},
			{Name: "W", Type: tensor.FP32, Dims: []any{3}},
		},
		Outputs: []onnxtest.Tensor{
			{Name: "B", Type: tensor.FP32, Dims: []any{"N", 3}},
			{Name: "Q", Type: tensor.FP32, Kind: "sequence", Dims: []any{"N", 3}},
		},
		Nodes: []onnxtest.Node{
			onnxtest.NodeOf("Add", []string{"A", "W"}, "B"),
			onnxtest.NodeOf("SequenceConstruct", []string{"A"}, "Q"),
			onnxtest.NodeOf("Identity", []string{"S"}, "unused"),
		},
		Initializers: []onnxtest.Initializer{{Name: "W", Type: tensor.FP32, Dims: []int64{3}, Raw: onnxtest.Floats(1, 2, 3)}},
	}
	s := session(t, m, ort.Options{})
	inputs, err := s.Inputs()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]ort.TensorInfo{
		{Name: "A", Type: tensor.FP32, Dims: tensor.Shape{-1, 3}},
		{Name: "S", Type: tensor.Int64, Dims: tensor.Shape{}},
	}, inputs); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
	outputs, err := s.Outputs()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]ort.TensorInfo{
		{Name: "B", Type: tensor.FP32, Dims: tensor.Shape{-1, 3}},
		{Name: "Q", Kind: "ONNX_TYPE_SEQUENCE"},
	}, outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	optional, err := s.Overridable()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]ort.TensorInfo{{Name: "W", Type: tensor.FP32, Dims: tensor.Shape{3}}}, optional); diff != "" {
		t.Errorf("overridable (-want +got):\n%s", diff)
	}
}

// words is memory that stays where it is, for the tests' tensors.
type words []uint64

func (w words) address() uintptr { return uintptr(unsafe.Pointer(&w[0])) }

func TestRunGivesBoundAndAllocatedOutputs(t *testing.T) {
	s := session(t, onnxtest.AddSub(tensor.FP32, 2), ort.Options{Intra: 1})
	l := s.Library()
	mem := make(words, 64)
	raw := ort.Bytes(mem.address(), 8*len(mem))
	copy(raw, onnxtest.Floats(5, 7, 2, 3))
	shape := tensor.Shape{1, 2}
	in0, err := l.NewTensor(tensor.FP32, shape, mem.address(), 8)
	if err != nil {
		t.Fatal(err)
	}
	in1, err := l.NewTensor(tensor.FP32, shape, mem.address()+8, 8)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := l.NewTensor(tensor.FP32, shape, mem.address()+64, 8)
	if err != nil {
		t.Fatal(err)
	}
	out := []ort.Value{bound, 0}
	c := ort.NewCall(s, nil)
	err = c.Run(ort.NewNames([]string{"INPUT0", "INPUT1"}), []ort.Value{in0, in1}, ort.NewNames([]string{"OUTPUT0", "OUTPUT1"}), out)
	if err != nil {
		t.Fatal(err)
	}
	if got := floats(raw[64:72]); !cmp.Equal(got, []float32{7, 10}) {
		t.Errorf("bound output: got %v, want [7 10]", got)
	}
	typ, dims, err := c.Describe(out[1], nil)
	if err != nil || typ != tensor.FP32 || !dims.Equal(shape) {
		t.Errorf("allocated output: got %v %v %v, want FP32 [1,2]", typ, dims, err)
	}
	address, err := c.Data(out[1])
	if err != nil {
		t.Fatal(err)
	}
	if got := floats(ort.Bytes(address, 8)); !cmp.Equal(got, []float32{3, 4}) {
		t.Errorf("allocated output: got %v, want [3 4]", got)
	}
	for _, v := range []ort.Value{in0, in1, out[0], out[1]} {
		c.Release(v)
	}
}

func floats(b []byte) []float32 {
	var f []float32
	for ; len(b) > 0; b = b[4:] {
		f = append(f, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return f
}

func TestStringsKeepTheirNULs(t *testing.T) {
	s := session(t, onnxtest.Identity(tensor.Bytes), ort.Options{Intra: 1})
	want := []string{"a\x00b", "", "\x00", "plain"}
	in, err := s.Library().NewOwnTensor(tensor.Bytes, tensor.Shape{int64(len(want))})
	if err != nil {
		t.Fatal(err)
	}
	c := ort.NewCall(s, nil)
	for i, w := range want {
		if err := c.SetString(in, i, []byte(w)); err != nil {
			t.Fatal(err)
		}
	}
	out := []ort.Value{0}
	if err := c.Run(ort.NewNames([]string{"IN"}), []ort.Value{in}, ort.NewNames([]string{"OUT"}), out); err != nil {
		t.Fatal(err)
	}
	n, err := c.StringsLen(out[0])
	if err != nil {
		t.Fatal(err)
	}
	text, offsets := make([]byte, n), make([]uint64, len(want))
	if err := c.Strings(out[0], text, offsets); err != nil {
		t.Fatal(err)
	}
	ends := append(offsets[1:], uint64(n))
	for i, w := range want {
		if got := string(text[offsets[i]:ends[i]]); got != w {
			t.Errorf("element %d: got %q, want %q", i, got, w)
		}
	}
	c.Release(in)
	c.Release(out[0])
}

func TestAFailedCallIsAnErrorWithTheLibrarysWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, []byte("\x08\x08 this is no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := open(t).NewSession(path, ort.Options{})
	var e *ort.Error
	if !errors.As(err, &e) || e.Code == 0 || e.Message == "" {
		t.Fatalf("got %#v, want an error with a code and a message", err)
	}
	if !strings.HasPrefix(err.Error(), "onnx runtime error ") {
		t.Errorf("got %q, want it to begin with \"onnx runtime error\"", err)
	}
}

func TestOptionsReachTheLibrary(t *testing.T) {
	yes, no := true, false
	s := session(t, onnxtest.AddSub(tensor.FP32, 2), ort.Options{
		Intra: 2, Inter: 2, Parallel: true, Optimization: ort.OptimizeNothing, MemArena: &no, MemPattern: &yes,
		Config: map[string]string{"session.intra_op.allow_spinning": "0"},
	})
	if inputs, err := s.Inputs(); err != nil || len(inputs) != 2 {
		t.Errorf("got %v %v, want two inputs", inputs, err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, onnxtest.AddSub(tensor.FP32, 2).Marshal(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := open(t).NewSession(path, ort.Options{Providers: []ort.Provider{{Name: "Nonesuch"}}})
	if err == nil || !strings.Contains(err.Error(), "Nonesuch") {
		t.Errorf("unknown provider: got %v, want an error that names it", err)
	}
}

func TestWithoutADeviceAllTensorsAreOnTheHost(t *testing.T) {
	s := session(t, onnxtest.AddSub(tensor.FP32, 4), ort.Options{})
	got, err := s.OnHost()
	if errors.Is(err, ort.ErrUnknown) {
		t.Skip("this ONNX Runtime is older than 1.23")
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheArenaOfASessionHasASize(t *testing.T) {
	l := open(t)
	m := onnxtest.Model{
		Inputs:       []onnxtest.Tensor{{Name: "A", Type: tensor.FP32, Dims: []any{"N", 3}}},
		Outputs:      []onnxtest.Tensor{{Name: "B", Type: tensor.FP32, Dims: []any{"N", 3}}},
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Add", []string{"A", "W"}, "B")},
		Initializers: []onnxtest.Initializer{{Name: "W", Type: tensor.FP32, Dims: []int64{3}, Raw: onnxtest.Floats(1, 2, 3)}},
	}
	s := session(t, m, ort.Options{})
	memory, err := l.NewMemory("Cpu", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.FreeMemory(memory)
	if n, err := s.ArenaBytes(memory); err != nil || n <= 0 {
		t.Errorf("got %d bytes, %v, want what the weights take at least", n, err)
	}
}
