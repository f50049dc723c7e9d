// Package square is a backend that answers the number n with n responses of n:
// it is decoupled. Parameters of the model slow it down, make it fail and leave
// responses out, to test the statistics of responses. Triton has the same for
// that purpose.
package square

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// Backend is the square backend. The zero value is ready for use.
type Backend struct{}

// Name implements backend.Backend.
func (Backend) Name() string { return "square" }

// Probe implements backend.Backend; there is no model file to read.
func (Backend) Probe(backend.Source) backend.Probed { return backend.Opener(open) }

func open(_ context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, _ backend.Host) (backend.Model, error) {
	one := tensor.Shape{1}
	if len(sig.Inputs) != 1 || sig.Inputs[0].Name != "IN" || sig.Inputs[0].Type != tensor.Int32 || !sig.Inputs[0].Dims.Equal(one) ||
		len(sig.Outputs) != 1 || sig.Outputs[0].Name != "OUT" || sig.Outputs[0].Type != tensor.Int32 || !sig.Outputs[0].Dims.Equal(one) {
		return nil, status.Errorf(status.InvalidArgument, "model '%s': the square backend expects one input 'IN' and one output 'OUT', both TYPE_INT32 with dims [ 1 ]", sig.Name)
	}
	if !cfg.GetModelTransactionPolicy().GetDecoupled() {
		return nil, status.Errorf(status.InvalidArgument, "model '%s': the square backend answers a request more than once; set model_transaction_policy { decoupled: true }", sig.Name)
	}
	m := &square{batched: sig.MaxBatch > 0}
	for name, to := range map[string]*int64{
		"CUSTOM_INFER_DELAY_NS": &m.inferDelay, "CUSTOM_OUTPUT_DELAY_NS": &m.outputDelay, "CUSTOM_CANCEL_DELAY_NS": &m.cancelDelay,
		"CUSTOM_FAIL_COUNT": &m.fails, "CUSTOM_EMPTY_COUNT": &m.empties,
	} {
		if err := number(cfg, name, to); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// number reads a parameter of the model that is a count, if it is set.
func number(cfg *modelpb.ModelConfig, name string, to *int64) error {
	p := cfg.GetParameters()[name]
	if p == nil {
		return nil
	}
	n, err := strconv.ParseInt(p.GetStringValue(), 10, 64)
	if err != nil || n < 0 {
		return status.Errorf(status.InvalidArgument, "model '%s': parameters.%s is %q, want a whole number from 0 on", cfg.GetName(), name, p.GetStringValue())
	}
	*to = n
	return nil
}

type square struct {
	batched                              bool
	inferDelay, outputDelay, cancelDelay int64 // nanoseconds
	fails, empties                       int64
}

func (m *square) Start(context.Context, backend.Placement) (backend.Instance, error) {
	return &instance{model: m}, nil
}

func (m *square) Close() error { return nil }

type instance struct {
	model   *square
	senders sync.WaitGroup
}

// Run implements backend.Instance. A goroutine for each request sends its
// responses and outlives Run.
func (in *instance) Run(b *infer.Batch) error {
	b.Times.InputsReady = time.Now()
	for _, r := range b.Requests {
		if r.Rows != 1 {
			r.Err = status.Errorf(status.InvalidArgument, "unexpected shape for IN input: the square backend takes one row, got %d", r.Rows)
			continue
		}
		n := int32(binary.LittleEndian.Uint32(r.Inputs[0].Data.Contiguous(nil)))
		s := r.Stream
		in.senders.Go(func() { in.model.send(s, n) })
	}
	b.Times.OutputsOut = time.Now()
	return nil
}

// send sends n responses and the end. The last of them are left out and those
// before them fail, as the parameters say. It checks before each response
// whether the client is gone, and completes a response that it has begun.
func (m *square) send(s *infer.Stream, n int32) {
	for i := range int64(n) {
		err := s.Wait()
		s.Begin()
		if err != nil {
			time.Sleep(time.Duration(m.cancelDelay))
			s.Finish(status.Errorf(status.Cancelled, "cancelled"))
			return
		}
		time.Sleep(time.Duration(m.inferDelay))
		if i >= int64(n)-m.empties {
			s.Skip()
			continue
		}
		resp := m.response(n)
		resp.OutputStart = time.Now()
		time.Sleep(time.Duration(m.outputDelay))
		if i >= int64(n)-m.empties-m.fails {
			resp.Release()
			resp.Err = status.Errorf(status.Unknown, "simulated failure")
		}
		_ = s.Send(resp, false) // Wait reports that the client is gone
	}
	s.Finish(nil)
}

func (m *square) response(n int32) *infer.Response {
	resp := new(infer.Response)
	out := resp.AddOutput()
	out.Name, out.Type = "OUT", tensor.Int32
	out.Shape = append(out.Shape, 1)
	if m.batched {
		out.Shape = append(out.Shape, 1)
	}
	out.Data = binary.LittleEndian.AppendUint32(nil, uint32(n))
	return resp
}

// Close implements backend.Instance. It waits until all responses are sent.
func (in *instance) Close() error {
	in.senders.Wait()
	return nil
}
