package onnx

import (
	"testing"
	"unsafe"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// A lender is the Memory of one instance. It knows what it has given out.
type lender struct {
	backend.Pages
	lent map[uintptr]int // sizes, by address
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (l *lender) Alloc(n int) ([]byte, error) {
	b, err := l.Pages.Alloc(n)
	l.lent[address(b)] = len(b)
	return b, err
}

func (l *lender) Free(b []byte) {
	delete(l.lent, address(b))
	l.Pages.Free(b)
}

func (l *lender) owns(b []byte) bool {
	for from, n := range l.lent {
		if at := address(b); at >= from && at+uintptr(len(b)) <= from+uintptr(n) {
			return true
		}
	}
	return false
}

func TestTensorsLieInTheMemoryOfTheirDevice(t *testing.T) {
	l := &lender{lent: make(map[uintptr]int)}
	var asked []string
	b, _ := newBackend(t, nil)
	b.options.Memory = func(p backend.Placement) backend.Memory {
		asked = append(asked, p.Kind.String())
		return l
	}
	m, err := load(t, b, write(t, onnxtest.AddSub(tensor.FP32, 2)), config(t, ``))
	if err != nil {
		t.Fatal(err)
	}
	started, err := m.Start(t.Context(), backend.Placement{Name: "m_0_0", Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	in := started.(*instance)
	var all []*infer.Request
	for i := range 2 * maxIdle { // more slots than are kept
		values := [][]byte{onnxtest.Floats(float32(i), 7)}
		r := request(1, arg{0, tensor.FP32, tensor.Shape{1, 2}, values}, arg{1, tensor.FP32, tensor.Shape{1, 2}, values})
		if _, err := run(in, r); err != nil {
			t.Fatal(err)
		}
		if out := result(t, r, "OUTPUT0"); !l.owns(out.Data) || string(out.Data) != string(onnxtest.Floats(2*float32(i), 14)) {
			t.Errorf("run %d: got %x, in the device's memory: %v; want the sum, there", i, out.Data, l.owns(out.Data))
		}
		all = append(all, r)
	}
	if !l.owns(in.region.mem) {
		t.Error("got inputs elsewhere, want them in the device's memory")
	}
	for _, r := range all {
		r.Release()
	}
	if err := in.Close(); err != nil || len(l.lent) != 0 {
		t.Errorf("got %v and %d pieces of memory that were not given back, want none", err, len(l.lent))
	}
	if len(asked) != 1 || asked[0] != "KIND_CPU" {
		t.Errorf("got memory asked for %v, want once, for the CPU", asked)
	}
}
