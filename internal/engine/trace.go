package engine

import (
	"time"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/trace"
)

// traceAccepted records that a traced request was accepted, and its inputs.
func (v *Version) traceAccepted(r *infer.Request, begin time.Time) {
	r.Trace.Begin(v.sig.Name, v.number, r.ID, begin)
	if !r.Trace.WantsTensors() {
		return
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		r.Trace.Input(in.Name, in.Type, in.Shape, in.Data.Contiguous(nil))
	}
}

// traceResponse records the outputs of a response to a traced request.
func traceResponse(r *infer.Request, resp *infer.Response) {
	if !r.Trace.WantsTensors() {
		return
	}
	for i := range resp.Outputs {
		out := &resp.Outputs[i]
		r.Trace.Output(out.Name, out.Type, out.Shape, out.Data)
	}
}

// traceDeliveries returns what counts the responses of a decoupled model to a traced
// request.
func (v *Version) traceDeliveries(r *infer.Request) func(infer.Delivery) {
	run := r.Trace
	return func(d infer.Delivery) {
		if d.Outcome == infer.ResponseSuccess {
			run.Responded(d.End)
		}
		v.stats.delivered(d)
	}
}

// traceBatch records an execution for its traced requests, if there are any.
func (s *stats) traceBatch(b *infer.Batch, err error) {
	var tb *trace.Batch
	for _, r := range b.Requests {
		if r.Trace == nil {
			continue
		}
		if s.ensemble { // its models have executions of their own
			if err == nil && r.Stream == nil {
				r.Trace.Responded(time.Now())
			}
			continue
		}
		if tb == nil {
			t := &b.Times
			tb = &trace.Batch{
				Model: r.Trace.Model, Version: r.Trace.Version, Requests: len(b.Requests), Rows: b.Rows,
				Start: t.Start, InputsReady: t.InputsReady, OutputsOut: t.OutputsOut, End: t.End,
			}
			if s.batching {
				tb.Reason = b.Reason.String()
			}
			if err != nil {
				tb.Err = status.Public(err)
			}
		}
		tb.Add(r.Trace)
	}
	if tb != nil {
		tb.Done()
	}
}
