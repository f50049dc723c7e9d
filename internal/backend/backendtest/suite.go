// Package backendtest has the tests that every backend must pass and fakes for
// tests of what stands on backends.
package backendtest

import (
	"bytes"
	"fmt"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A Subject is a backend under test.
type Subject struct {
	// Open loads a model under cfg that gives each of its inputs INPUTn back as
	// OUTPUTn. The model is closed by the suite.
	Open func(t *testing.T, cfg *modelpb.ModelConfig) (backend.Model, error)
	// Types are the types that the backend can carry; empty means all.
	Types []tensor.Type
}

// Run runs the suite.
func Run(t *testing.T, s Subject) {
	if len(s.Types) == 0 {
		for typ := tensor.Bool; typ <= tensor.BF16; typ++ {
			s.Types = append(s.Types, typ)
		}
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"every type comes back as it was sent", everyType},
		{"an input in pieces comes back in one", pieces},
		{"requests in a batch get their own rows", ownRows},
		{"a request gets the outputs that it wants", wantedOutputs},
		{"responses outlive later runs", outlive},
		{"tensors without elements work", noElements},
		{"a model without a batch dimension works", noBatchDimension},
		{"a cut string fails its request alone", cutString},
		{"a run sets its times", times},
		{"two instances run side by side", sideBySide},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

// config returns the configuration of a model with so many inputs.
func config(maxBatch int32, tensors int, typ tensor.Type, dims ...int64) *modelpb.ModelConfig {
	cfg := &modelpb.ModelConfig{Name: "subject", MaxBatchSize: maxBatch}
	for i := range tensors {
		cfg.Input = append(cfg.Input, &modelpb.ModelInput{Name: fmt.Sprintf("INPUT%d", i), DataType: modelpb.DataType(typ), Dims: dims})
		cfg.Output = append(cfg.Output, &modelpb.ModelOutput{Name: fmt.Sprintf("OUTPUT%d", i), DataType: modelpb.DataType(typ), Dims: dims})
	}
	cfg.InstanceGroup = []*modelpb.ModelInstanceGroup{{Name: "subject", Kind: modelpb.ModelInstanceGroup_KIND_CPU, Count: 2}}
	return cfg
}

// open loads a model and starts so many instances of it.
func (s Subject) open(t *testing.T, cfg *modelpb.ModelConfig, count int) []backend.Instance {
	t.Helper()
	m, err := s.Open(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close the model: %v", err)
		}
	})
	var list []backend.Instance
	for i := range count {
		in, err := m.Start(t.Context(), backend.Placement{Name: fmt.Sprintf("subject_0_%d", i), Kind: modelpb.ModelInstanceGroup_KIND_CPU, Count: count, Group: cfg.InstanceGroup[0]})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := in.Close(); err != nil {
				t.Errorf("close an instance: %v", err)
			}
		})
		list = append(list, in)
	}
	return list
}

// ask returns a request of so many rows whose inputs have that content, each in
// a shape of its own size.
func ask(typ tensor.Type, rows int, shape tensor.Shape, inputs ...[]byte) *infer.Request {
	r := infer.NewRequest()
	r.Rows = rows
	for i, data := range inputs {
		in := r.AddInput()
		in.Name, in.Index, in.Type, in.Shape = fmt.Sprintf("INPUT%d", i), i, typ, shape
		in.Data.First = data
	}
	return r
}

// execute runs a batch and fails the test when it fails.
func execute(t *testing.T, in backend.Instance, requests ...*infer.Request) *infer.Batch {
	t.Helper()
	b := &infer.Batch{Requests: requests}
	for _, r := range requests {
		b.Rows += r.Rows
	}
	if err := in.Run(b); err != nil {
		t.Fatalf("run: %v", err)
	}
	return b
}

// expect compares an output of a request.
func expect(t *testing.T, r *infer.Request, name string, typ tensor.Type, shape tensor.Shape, data []byte) {
	t.Helper()
	if r.Err != nil {
		t.Errorf("%s: got error %v, want none", name, r.Err)
		return
	}
	for _, out := range r.Response.Outputs {
		if out.Name != name {
			continue
		}
		if out.Type != typ || !out.Shape.Equal(shape) || !bytes.Equal(out.Data, data) {
			t.Errorf("%s: got %v %v %x, want %v %v %x", name, out.Type, out.Shape, out.Data, typ, shape, data)
		}
		return
	}
	t.Errorf("got no output %s, want one", name)
}

// content returns the bytes of n elements, each different, beginning with a
// number of the caller's.
func content(typ tensor.Type, n, first int) []byte {
	var b []byte
	for i := range n {
		switch {
		case typ == tensor.Bytes:
			text := fmt.Sprintf("s\x00%d", first+i)
			b = append(b, byte(len(text)), 0, 0, 0)
			b = append(b, text...)
		case typ == tensor.Bool:
			b = append(b, byte(first+i)&1)
		default:
			b = append(b, byte(first+i))
			b = append(b, make([]byte, typ.Size()-1)...)
		}
	}
	return b
}

func everyType(t *testing.T, s Subject) {
	for _, typ := range s.Types {
		t.Run(typ.String(), func(t *testing.T) {
			in := s.open(t, config(4, 1, typ, 3), 1)[0]
			data := content(typ, 6, 1)
			r := ask(typ, 2, tensor.Shape{2, 3}, data)
			defer r.Release()
			execute(t, in, r)
			expect(t, r, "OUTPUT0", typ, tensor.Shape{2, 3}, data)
		})
	}
}

func pieces(t *testing.T, s Subject) {
	for _, typ := range []tensor.Type{tensor.FP32, tensor.Bytes} {
		in := s.open(t, config(4, 1, typ, 3), 1)[0]
		data := content(typ, 3, 7)
		r := ask(typ, 1, tensor.Shape{1, 3}, nil)
		defer r.Release()
		// Cut where no element ends.
		r.Inputs[0].Data = infer.Data{First: data[:1], Rest: [][]byte{data[1:2], nil, data[2:]}}
		execute(t, in, r)
		expect(t, r, "OUTPUT0", typ, tensor.Shape{1, 3}, data)
	}
}

func ownRows(t *testing.T, s Subject) {
	for _, typ := range []tensor.Type{tensor.Int32, tensor.Bytes} {
		in := s.open(t, config(8, 2, typ, 2), 1)[0]
		var batch []*infer.Request
		for i, rows := range []int{1, 3, 2} {
			shape := tensor.Shape{int64(rows), 2}
			batch = append(batch, ask(typ, rows, shape, content(typ, 2*rows, 10*i), content(typ, 2*rows, 10*i+100)))
		}
		execute(t, in, batch...)
		for i, r := range batch {
			shape := tensor.Shape{int64(r.Rows), 2}
			expect(t, r, "OUTPUT0", typ, shape, content(typ, 2*r.Rows, 10*i))
			expect(t, r, "OUTPUT1", typ, shape, content(typ, 2*r.Rows, 10*i+100))
			r.Release()
		}
	}
}

func wantedOutputs(t *testing.T, s Subject) {
	in := s.open(t, config(8, 2, tensor.Int32, 1), 1)[0]
	r := ask(tensor.Int32, 1, tensor.Shape{1, 1}, content(tensor.Int32, 1, 1), content(tensor.Int32, 1, 2))
	r.Outputs = append(r.Outputs, infer.Wanted{Name: "OUTPUT1"})
	defer r.Release()
	execute(t, in, r)
	if got := len(r.Response.Outputs); got != 1 {
		t.Errorf("got %d outputs, want the one that was asked for", got)
	}
	expect(t, r, "OUTPUT1", tensor.Int32, tensor.Shape{1, 1}, content(tensor.Int32, 1, 2))
	if got := r.Response.Outputs[0].Index; got != 1 {
		t.Errorf("index: got %d, want 1", got)
	}
}

func outlive(t *testing.T, s Subject) {
	for _, typ := range []tensor.Type{tensor.Int64, tensor.Bytes} {
		in := s.open(t, config(4, 1, typ, 2), 1)[0]
		var all []*infer.Request
		for i := range 12 { // more than a backend is likely to keep memory for
			r := ask(typ, 1, tensor.Shape{1, 2}, content(typ, 2, i))
			execute(t, in, r)
			all = append(all, r)
		}
		for i, r := range all {
			expect(t, r, "OUTPUT0", typ, tensor.Shape{1, 2}, content(typ, 2, i))
			r.Release()
		}
	}
}

func noElements(t *testing.T, s Subject) {
	for _, typ := range []tensor.Type{tensor.FP32, tensor.Bytes} {
		in := s.open(t, config(4, 1, typ, -1), 1)[0]
		r := ask(typ, 2, tensor.Shape{2, 0}, nil)
		execute(t, in, r)
		expect(t, r, "OUTPUT0", typ, tensor.Shape{2, 0}, nil)
		r.Release()
	}
}

func noBatchDimension(t *testing.T, s Subject) {
	in := s.open(t, config(0, 1, tensor.FP32, 2, -1), 1)[0]
	for _, width := range []int64{3, 1, 3} {
		data := content(tensor.FP32, int(2*width), 5)
		r := ask(tensor.FP32, 1, tensor.Shape{2, width}, data)
		execute(t, in, r)
		expect(t, r, "OUTPUT0", tensor.FP32, tensor.Shape{2, width}, data)
		r.Release()
	}
}

func cutString(t *testing.T, s Subject) {
	in := s.open(t, config(8, 1, tensor.Bytes, 1), 1)[0]
	good := ask(tensor.Bytes, 1, tensor.Shape{1, 1}, content(tensor.Bytes, 1, 1))
	cut := ask(tensor.Bytes, 1, tensor.Shape{1, 1}, []byte{9, 0, 0, 0, 'x'})
	last := ask(tensor.Bytes, 1, tensor.Shape{1, 1}, content(tensor.Bytes, 1, 2))
	execute(t, in, good, cut, last)
	const want = "incomplete string data for inference input 'INPUT0', expecting string of length 9 but only 1 bytes available"
	if cut.Err == nil || status.Public(cut.Err) != want || status.CodeOf(cut.Err) != status.InvalidArgument {
		t.Errorf("the cut one: got %v, want %s", cut.Err, want)
	}
	expect(t, good, "OUTPUT0", tensor.Bytes, tensor.Shape{1, 1}, content(tensor.Bytes, 1, 1))
	expect(t, last, "OUTPUT0", tensor.Bytes, tensor.Shape{1, 1}, content(tensor.Bytes, 1, 2))
	for _, r := range []*infer.Request{good, cut, last} {
		r.Release()
	}
}

func times(t *testing.T, s Subject) {
	in := s.open(t, config(4, 1, tensor.FP32, 1), 1)[0]
	r := ask(tensor.FP32, 1, tensor.Shape{1, 1}, content(tensor.FP32, 1, 1))
	defer r.Release()
	b := execute(t, in, r)
	if b.Times.InputsReady.IsZero() || b.Times.OutputsOut.Before(b.Times.InputsReady) {
		t.Errorf("got inputs ready at %v and outputs out at %v, want both, in that order", b.Times.InputsReady, b.Times.OutputsOut)
	}
}

func sideBySide(t *testing.T, s Subject) {
	done := make(chan error)
	instances := s.open(t, config(4, 1, tensor.Int32, 4), 2)
	for n, in := range instances {
		go func() { done <- repeat(in, 100*n) }()
	}
	for range instances {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// repeat runs an instance over and over and says where its answer was not its
// input.
func repeat(in backend.Instance, first int) error {
	for i := range 50 {
		data := content(tensor.Int32, 4, first+i)
		r := ask(tensor.Int32, 1, tensor.Shape{1, 4}, data)
		if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}, Rows: 1}); err != nil {
			return err
		}
		if got := r.Response.Outputs[0].Data; !bytes.Equal(got, data) {
			return fmt.Errorf("run %d: got %x, want %x", i, got, data)
		}
		r.Release()
	}
	return nil
}
