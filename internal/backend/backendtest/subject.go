package backendtest

import (
	"bytes"
	"fmt"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// A Subject is a backend under test.
type Subject struct {
	// Open loads a model under cfg that returns each of its inputs INPUTn as
	// OUTPUTn. The suite closes the model.
	Open func(t *testing.T, cfg *modelpb.ModelConfig) (backend.Model, error)
	// Types are the types that the backend supports; empty means all.
	Types []tensor.Type
}

// config returns the configuration of a model with that many inputs.
func config(maxBatch int32, tensors int, typ tensor.Type, dims ...int64) *modelpb.ModelConfig {
	cfg := &modelpb.ModelConfig{Name: "subject", MaxBatchSize: maxBatch}
	for i := range tensors {
		cfg.Input = append(cfg.Input, &modelpb.ModelInput{Name: fmt.Sprintf("INPUT%d", i), DataType: modelpb.DataType(typ), Dims: dims})
		cfg.Output = append(cfg.Output, &modelpb.ModelOutput{Name: fmt.Sprintf("OUTPUT%d", i), DataType: modelpb.DataType(typ), Dims: dims})
	}
	cfg.InstanceGroup = []*modelpb.ModelInstanceGroup{{Name: "subject", Kind: modelpb.ModelInstanceGroup_KIND_CPU, Count: 2}}
	return cfg
}

// open loads a model and starts count instances of it.
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

// ask returns a request with the given rows and input contents; each input's
// shape follows from its size.
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

// execute runs a batch; an error fails the test.
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

// content returns the bytes of n distinct elements, beginning with first.
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
