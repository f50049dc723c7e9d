package onnx

import (
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/backendtest"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

func TestBackend(t *testing.T) {
	b, _ := newBackend(t, nil)
	backendtest.Run(t, backendtest.Subject{Open: func(t *testing.T, cfg *modelpb.ModelConfig) (backend.Model, error) {
		p := b.Probe(write(t, identityFor(cfg)))
		defer p.Close()
		if err := p.Complete(t.Context(), cfg); err != nil {
			return nil, err
		}
		return p.Open(t.Context(), cfg, model.NewSignature(cfg), nil)
	}})
}

// identityFor returns a model file for a configuration of INPUTn and OUTPUTn.
func identityFor(cfg *modelpb.ModelConfig) onnxtest.Model {
	m := onnxtest.Model{Opset: 16}
	var batch []any
	if cfg.GetMaxBatchSize() > 0 {
		batch = []any{"N"}
	}
	for i, in := range cfg.GetInput() {
		dims := append([]any(nil), batch...)
		for _, d := range in.GetDims() {
			if d < 0 {
				dims = append(dims, "any")
			} else {
				dims = append(dims, d)
			}
		}
		out := cfg.GetOutput()[i].GetName()
		typ := tensor.Type(in.GetDataType())
		m.Inputs = append(m.Inputs, onnxtest.Tensor{Name: in.GetName(), Type: typ, Dims: dims})
		m.Outputs = append(m.Outputs, onnxtest.Tensor{Name: out, Type: typ, Dims: dims})
		m.Nodes = append(m.Nodes, onnxtest.NodeOf("Identity", []string{in.GetName()}, out))
	}
	return m
}
