// Package identity is a backend that returns every input: INPUTn becomes
// OUTPUTn, of any type and shape, after a delay that the model's parameters
// set. Triton has the same for its own tests. It is for tests, benchmarks and
// users who try the protocols without a model file.
package identity

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// Backend is the identity backend. The zero value is ready for use.
type Backend struct{}

// Name implements backend.Backend.
func (Backend) Name() string { return "identity" }

// Probe implements backend.Backend; there is no model file to read.
func (Backend) Probe(backend.Source) backend.Probed { return backend.Opener(open) }

func open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, _ backend.Host) (backend.Model, error) {
	m := &identity{sig: sig, from: make([]int, len(sig.Outputs))}
	for i := range sig.Outputs {
		out := &sig.Outputs[i]
		m.from[i] = sig.Input("INPUT" + strings.TrimPrefix(out.Name, "OUTPUT"))
		if m.from[i] < 0 || !strings.HasPrefix(out.Name, "OUTPUT") {
			return nil, status.Errorf(status.InvalidArgument, "model '%s': the identity backend has outputs OUTPUTn with an input INPUTn each, got output '%s'", sig.Name, out.Name)
		}
		if in := &sig.Inputs[m.from[i]]; in.Type != out.Type {
			return nil, status.Errorf(status.InvalidArgument, "model '%s': output '%s' is %s and its input %s; the identity backend cannot convert",
				sig.Name, out.Name, out.Type.ConfigName(), in.Type.ConfigName())
		}
	}
	delay, err := number(cfg, "execute_delay_ms")
	if err != nil {
		return nil, err
	}
	if m.multiplier, err = number(cfg, "instance_wise_delay_multiplier"); err != nil {
		return nil, err
	}
	creation, err := number(cfg, "creation_delay_sec")
	if err != nil {
		return nil, err
	}
	m.delay = time.Duration(delay) * time.Millisecond
	select {
	case <-time.After(time.Duration(creation) * time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return m, nil
}

// number returns a parameter of the model as a count, 0 when it is not set.
func number(cfg *modelpb.ModelConfig, name string) (int64, error) {
	p := cfg.GetParameters()[name]
	if p == nil {
		return 0, nil
	}
	n, err := strconv.ParseInt(p.GetStringValue(), 10, 32)
	if err != nil || n < 0 {
		return 0, status.Errorf(status.InvalidArgument, "model '%s': parameters.%s is %q, want a whole number from 0 on", cfg.GetName(), name, p.GetStringValue())
	}
	return n, nil
}

type identity struct {
	sig        *model.Signature
	from       []int // by output: its input
	delay      time.Duration
	multiplier int64
	started    int64
}

func (m *identity) Start(context.Context, backend.Placement) (backend.Instance, error) {
	in := &instance{model: m, delay: m.delay}
	if m.multiplier > 0 {
		in.delay *= time.Duration(max(1, m.multiplier*m.started))
	}
	m.started++
	return in, nil
}

func (m *identity) Close() error { return nil }

type instance struct {
	model *identity
	delay time.Duration
}

// Run implements backend.Instance. The outputs are the request's own bytes, so
// they are copied only if they were received in pieces.
func (in *instance) Run(b *infer.Batch) error {
	b.Times.InputsReady = time.Now()
	if in.delay > 0 {
		time.Sleep(in.delay)
	}
	b.Times.OutputsOut = time.Now()
	for _, r := range b.Requests {
		in.answer(r)
	}
	return nil
}

func (in *instance) answer(r *infer.Request) {
	if len(r.Outputs) == 0 {
		for i := range in.model.sig.Outputs {
			in.output(r, i)
		}
	}
	for i := range r.Outputs {
		in.output(r, in.model.sig.Output(r.Outputs[i].Name))
	}
	r.Response.Params = append(r.Response.Params[:0], exampleParams...)
	r.Response.Borrowed = true
}

// exampleParams are in every answer, as from Triton's identity backend, to test
// how clients handle response parameters.
var exampleParams = []infer.Param{
	{Name: "param0", Kind: infer.ParamString, String: "an example string parameter"},
	{Name: "param1", Kind: infer.ParamInt, Int: 42},
	{Name: "param2", Kind: infer.ParamBool, Bool: false},
	{Name: "param3", Kind: infer.ParamFloat, Float: 123.123},
}

func (in *instance) output(r *infer.Request, i int) {
	sig := in.model.sig
	out := r.Response.AddOutput()
	out.Name, out.Type, out.Index = sig.Outputs[i].Name, sig.Outputs[i].Type, i
	for j := range r.Inputs {
		src := &r.Inputs[j]
		if src.Index != in.model.from[i] {
			continue
		}
		out.Shape = append(out.Shape, src.Shape...)
		out.Data = src.Data.First
		if len(src.Data.Rest) > 0 {
			out.Data = src.Data.Contiguous(r.Grow(src.Data.Size()))
		}
		return
	}
	in.zeros(r, out, &sig.Outputs[i])
}

// zeros makes the output for an optional input that the client left out.
func (in *instance) zeros(r *infer.Request, out *infer.Output, t *model.Tensor) {
	if in.model.sig.MaxBatch > 0 {
		out.Shape = append(out.Shape, int64(r.Rows))
	}
	for _, d := range t.Dims {
		out.Shape = append(out.Shape, max(d, 1))
	}
	n, ok := out.Shape.Elements()
	if !ok {
		panic(fmt.Sprintf("BUG: identity: shape %s of output %q", out.Shape, t.Name))
	}
	size := int64(t.Type.Size())
	if t.Type == tensor.Bytes {
		size = 4 // an empty string is just its length
	}
	out.Data = make([]byte, n*size)
}

func (in *instance) Close() error { return nil }
