// Package backendtest has the tests that every backend must pass, and fakes for
// tests of code that uses backends.
package backendtest

import (
	"bytes"
	"fmt"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/tensor"
)

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
		{"responses outlive a trim, and runs go on after it", trimmed},
		{"tensors without elements work", noElements},
		{"a model without a batch dimension works", noBatchDimension},
		{"a run sets its times", times},
		{"two instances run side by side", sideBySide},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
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
		// Cut within an element.
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

// trimmed trims an instance between runs, while a response is not released, and
// from another goroutine while batches run.
func trimmed(t *testing.T, s Subject) {
	typ := tensor.Int64
	in := s.open(t, config(4, 1, typ, 2), 1)[0]
	trimmer, ok := in.(backend.Trimmer)
	if !ok {
		t.Skip("the backend keeps no memory")
	}
	out := ask(typ, 1, tensor.Shape{1, 2}, content(typ, 2, 1000))
	defer out.Release()
	execute(t, in, out)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				trimmer.Trim()
			}
		}
	}()
	for i := range 50 {
		r := ask(typ, 1, tensor.Shape{1, 2}, content(typ, 2, i))
		execute(t, in, r)
		expect(t, r, "OUTPUT0", typ, tensor.Shape{1, 2}, content(typ, 2, i))
		r.Release()
	}
	close(stop)
	<-stopped
	expect(t, out, "OUTPUT0", typ, tensor.Shape{1, 2}, content(typ, 2, 1000))
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

// repeat runs an instance repeatedly and returns an error when an answer is not
// its input.
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
