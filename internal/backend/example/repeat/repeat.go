// Package repeat is a backend that returns the elements of its input one by
// one. It is decoupled: it sends a response for each element of IN, after the
// milliseconds in the same element of DELAY. Its execution takes the
// milliseconds in WAIT, so responses come before and after it ends. Triton has
// the same to demonstrate and test such models.
package repeat

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// Backend is the repeat backend. The zero value is ready for use.
type Backend struct{}

// Name implements backend.Backend.
func (Backend) Name() string { return "repeat" }

// Probe implements backend.Backend; there is no model file to read.
func (Backend) Probe(backend.Source) backend.Probed { return backend.Opener(open) }

// The tensors of a model of this backend, in the order of the instance's
// fields.
var (
	inputs  = []model.Tensor{{Name: "IN", Type: tensor.Int32}, {Name: "DELAY", Type: tensor.Uint32}, {Name: "WAIT", Type: tensor.Uint32}}
	outputs = []model.Tensor{{Name: "OUT", Type: tensor.Int32}, {Name: "IDX", Type: tensor.Uint32}}
)

func open(_ context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, _ backend.Host) (backend.Model, error) {
	if sig.MaxBatch > 0 {
		return nil, status.Errorf(status.InvalidArgument, "model '%s': repeat backend only supports models with max_batch_size == 0", sig.Name)
	}
	if !cfg.GetModelTransactionPolicy().GetDecoupled() {
		return nil, status.Errorf(status.InvalidArgument, "model '%s': the repeat backend answers a request more than once; set model_transaction_policy { decoupled: true }", sig.Name)
	}
	m := &repeat{sig: sig}
	for i, want := range inputs {
		if m.in[i] = sig.Input(want.Name); m.in[i] < 0 || sig.Inputs[m.in[i]].Type != want.Type {
			return nil, wrongTensor(sig, "an input", want)
		}
	}
	for i, want := range outputs {
		if m.out[i] = sig.Output(want.Name); m.out[i] < 0 || sig.Outputs[m.out[i]].Type != want.Type {
			return nil, wrongTensor(sig, "an output", want)
		}
	}
	if len(sig.Inputs) != len(inputs) || len(sig.Outputs) != len(outputs) {
		return nil, status.Errorf(status.InvalidArgument, "model '%s': the repeat backend expects %d inputs and %d outputs, got %d and %d",
			sig.Name, len(inputs), len(outputs), len(sig.Inputs), len(sig.Outputs))
	}
	return m, nil
}

func wrongTensor(sig *model.Signature, what string, want model.Tensor) error {
	return status.Errorf(status.InvalidArgument, "model '%s': the repeat backend expects %s '%s' of %s", sig.Name, what, want.Name, want.Type.ConfigName())
}

type repeat struct {
	sig *model.Signature
	in  [3]int // by inputs: their places in the signature
	out [2]int
}

func (m *repeat) Start(context.Context, backend.Placement) (backend.Instance, error) {
	return &instance{model: m}, nil
}

func (m *repeat) Close() error { return nil }

type instance struct {
	model   *repeat
	senders sync.WaitGroup
}

// Run implements backend.Instance. A goroutine for each request sends its
// responses and may outlive Run.
func (in *instance) Run(b *infer.Batch) error {
	b.Times.InputsReady = time.Now()
	for _, r := range b.Requests {
		job, err := in.read(r)
		if err != nil {
			r.Err = err
			continue
		}
		in.senders.Go(job.send)
		job.pause(job.wait)
	}
	b.Times.OutputsOut = time.Now()
	return nil
}

// A job is the responses to one request.
type job struct {
	model  *repeat
	stream *infer.Stream
	wanted [2]bool // by outputs
	values []uint32
	delays []uint32 // milliseconds
	wait   time.Duration
}

// read copies what the responses need from a request.
func (in *instance) read(r *infer.Request) (*job, error) {
	j := &job{model: in.model, stream: r.Stream}
	j.values, j.delays = in.numbers(r, 0), in.numbers(r, 1)
	if len(j.values) != len(j.delays) {
		return nil, status.Errorf(status.InvalidArgument, "expected IN and DELAY shape to match, got [%d] and [%d]", len(j.values), len(j.delays))
	}
	if wait := in.numbers(r, 2); len(wait) == 1 {
		j.wait = time.Duration(wait[0]) * time.Millisecond
	} else {
		return nil, status.Errorf(status.InvalidArgument, "unexpected size for WAIT input: got %d elements, want 1", len(wait))
	}
	for i := range outputs {
		j.wanted[i] = len(r.Outputs) == 0
		for k := range r.Outputs {
			j.wanted[i] = j.wanted[i] || r.Outputs[k].Name == outputs[i].Name
		}
	}
	return j, nil
}

// numbers returns the elements of the i-th of the inputs.
func (in *instance) numbers(r *infer.Request, i int) []uint32 {
	for k := range r.Inputs {
		src := &r.Inputs[k]
		if src.Index != in.model.in[i] {
			continue
		}
		data := src.Data.Contiguous(nil)
		list := make([]uint32, len(data)/4)
		for n := range list {
			list[n] = binary.LittleEndian.Uint32(data[4*n:])
		}
		return list
	}
	return nil
}

// send sends the responses and the end. It stops when the client is gone.
func (j *job) send() {
	for i, v := range j.values {
		j.pause(time.Duration(j.delays[i]) * time.Millisecond)
		if err := j.stream.Wait(); err != nil {
			j.stream.Finish(err)
			return
		}
		if err := j.stream.Send(j.response(v, uint32(i)), false); err != nil {
			j.stream.Finish(err)
			return
		}
	}
	j.stream.Finish(nil)
}

// pause waits for d, or until the client is gone.
func (j *job) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-j.stream.Done():
	}
}

func (j *job) response(values ...uint32) *infer.Response {
	resp := new(infer.Response)
	for i, v := range values {
		if !j.wanted[i] {
			continue
		}
		out := resp.AddOutput()
		out.Name, out.Type, out.Index = outputs[i].Name, outputs[i].Type, j.model.out[i]
		out.Shape = append(out.Shape, 1)
		out.Data = binary.LittleEndian.AppendUint32(nil, v)
	}
	return resp
}

// Close implements backend.Instance. It waits until all responses are sent.
func (in *instance) Close() error {
	in.senders.Wait()
	return nil
}
