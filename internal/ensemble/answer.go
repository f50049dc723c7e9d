package ensemble

import (
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// fill makes the frame's tensors the outputs of a response.
func (f *frame) fill(resp *infer.Response) error {
	x := f.x
	var sequence *infer.Sequence
	for _, i := range x.plan.wanted {
		link := &x.s.graph.Outputs[i]
		v := &f.values[link.Tensor]
		if !v.set {
			return status.Errorf(status.InvalidArgument, "[request id: %s] unexpected deadlock, at least one output is not set while no more ensemble steps can be made", id(x.r))
		}
		if v.absent {
			continue
		}
		if sequence == nil {
			sequence = v.sequence
		}
		out := resp.AddOutput()
		out.Name, out.Type, out.Index = link.Name, v.typ, i
		out.Shape = f.outputShape(out.Shape, i, v)
		out.Data, out.Private = v.data.First, v.data.Private
		resp.Borrowed = resp.Borrowed || v.from == nil || v.from.borrows != nil
		if len(v.data.Rest) > 0 { // an input that the ensemble passes through
			out.Data = v.data.Contiguous(x.r.Grow(v.data.Size()))
		}
	}
	if sequence != nil {
		resp.Params = appendSequence(resp.Params, sequence, x.r.Sequence.StringID != "")
	}
	return nil
}

// outputShape appends the shape of an output as clients see it.
func (f *frame) outputShape(dst tensor.Shape, i int, v *value) tensor.Shape {
	want := &f.x.s.sig.Outputs[i]
	batching := f.x.s.sig.MaxBatch > 0
	if want.Reshape == nil {
		return fit(dst, want.Dims, batching, v)
	}
	whole := fit(nil, want.Reshape, batching, v)
	inner := whole
	if batching && len(whole) > 0 {
		dst, inner = append(dst, whole[0]), whole[1:]
	}
	if !want.Reshape.Accepts(inner) { // a Python model may answer with any shape
		return whole
	}
	return tensor.Substitute(dst, want.Dims, want.Reshape, inner)
}

func id(r *infer.Request) string {
	if r.ID == "" {
		return "<id_unknown>"
	}
	return r.ID
}

// appendSequence appends what an ensemble's answers say of the sequence, which
// is the only thing that they keep of the parameters in its steps' answers.
func appendSequence(params []infer.Param, s *infer.Sequence, text bool) []infer.Param {
	id := infer.Param{Name: "sequence_id", Kind: infer.ParamInt, Int: int64(s.ID)}
	if text {
		id = infer.Param{Name: "sequence_id", Kind: infer.ParamString, String: s.StringID}
	}
	return append(params, id,
		infer.Param{Name: "sequence_start", Kind: infer.ParamBool, Bool: s.Start},
		infer.Param{Name: "sequence_end", Kind: infer.ParamBool, Bool: s.End})
}

// overrideSequence changes s to what a step's answer says of the sequence, for
// the steps after it.
func overrideSequence(s *infer.Sequence, params []infer.Param) error {
	said := false
	next := infer.Sequence{ID: s.ID, StringID: s.StringID}
	for i := range params {
		p := &params[i]
		switch p.Name {
		case "sequence_id":
			switch p.Kind {
			case infer.ParamInt:
				next.ID, next.StringID = uint64(p.Int), ""
			case infer.ParamUint:
				next.ID, next.StringID = p.Uint, ""
			case infer.ParamString:
				next.ID, next.StringID = 0, p.String
			default:
				return status.Errorf(status.InvalidArgument, "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING")
			}
		case "sequence_start", "sequence_end":
			if p.Kind != infer.ParamBool {
				return status.Errorf(status.InvalidArgument, "expect parameter '%s' to be TRITONSERVER_PARAMETER_BOOL", p.Name)
			}
			if p.Name == "sequence_start" {
				next.Start = p.Bool
			} else {
				next.End = p.Bool
			}
		default:
			continue
		}
		said = true
	}
	if said {
		*s = next
	}
	return nil
}
