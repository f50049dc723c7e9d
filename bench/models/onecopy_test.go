package main

import (
	"context"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// counting is a backend that counts what was opened and started.
type counting struct{ opened, started int }

func (*counting) Name() string                                           { return "onnxruntime" }
func (c *counting) Probe(backend.Source) backend.Probed                  { return c }
func (c *counting) Complete(context.Context, *modelpb.ModelConfig) error { return nil }
func (c *counting) Close()                                               {}
func (c *counting) Open(context.Context, *modelpb.ModelConfig, *model.Signature, backend.Host) (backend.Model, error) {
	c.opened++
	return countedModel{c}, nil
}

type countedModel struct{ *counting }

func (m countedModel) Start(context.Context, backend.Placement) (backend.Instance, error) {
	m.started++
	return countedInstance{}, nil
}
func (countedModel) Close() error { return nil }

type countedInstance struct{}

func (countedInstance) Run(*infer.Batch) error { return nil }
func (countedInstance) Close() error           { return nil }

func TestModelsShareTheInstancesOfTheFirst(t *testing.T) {
	under := new(counting)
	shared := &oneCopy{Backend: under}
	var first []backend.Instance
	for n := range 3 {
		m, err := shared.Probe(backend.Source{}).Open(t.Context(), nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			in, err := m.Start(t.Context(), backend.Placement{})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := in.(backend.OnThread); !ok {
				t.Error("got an instance that does not compute on its caller's thread")
			}
			if n == 0 {
				first = append(first, in)
			} else if in != first[i] {
				t.Errorf("model %d, instance %d: got another than the first model's", n, i)
			}
		}
	}
	if under.opened != 1 || under.started != 2 || first[0] == first[1] {
		t.Errorf("got %d models and %d instances, want one and two", under.opened, under.started)
	}
}
