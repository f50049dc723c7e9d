package kservegrpc

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"shoal/internal/infer"
	"shoal/internal/protocol/kserve"
	"shoal/internal/shm"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// parseVersion returns the version in a client's text. An empty text is the
// latest; anything after the digits is ignored, as clients of Triton may rely
// on that.
func parseVersion(s string) (int64, error) {
	if s == "" {
		return infer.LatestVersion, nil
	}
	number := strings.TrimLeft(s, " \t\n\v\f\r")
	end := 0
	if number != "" && (number[0] == '-' || number[0] == '+') {
		end = 1
	}
	for end < len(number) && '0' <= number[end] && number[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(number[:end], 10, 64)
	if err != nil {
		return 0, status.Errorf(status.InvalidArgument,
			"failed to get model version from specified version string '%s' (details: stol), version should be an integral value > 0", s)
	}
	if n < 0 {
		return 0, status.Errorf(status.InvalidArgument, "invalid model version specified '%s' , version should be an integral value > 0", s)
	}
	return n, nil
}

// fill converts the message to its request, whose model and version are already
// set.
func (m *message) fill(memory *shm.Registry) error {
	r := m.req
	r.ID = m.id
	for i := range m.params {
		if err := m.setParam(&m.params[i]); err != nil {
			return err
		}
	}
	raw := m.raw
	for i := range m.inputs {
		var err error
		if raw, err = m.fillInput(&m.inputs[i], raw, memory); err != nil {
			if m.named(m.inputs[i].name) { // a duplicate is worse: the engine says so
				m.req.AddInput().Name = m.inputs[i].name
				return nil
			}
			return err
		}
	}
	for i := range m.outputs {
		if err := fillOutput(r, &m.outputs[i], memory); err != nil {
			return err
		}
	}
	return nil
}

// named reports whether the request has an input of that name already.
func (m *message) named(name string) bool {
	return slices.ContainsFunc(m.req.Inputs, func(in infer.Input) bool { return in.Name == name })
}

// fillInput adds an input to the request and returns the raw contents left for
// the next ones.
func (m *message) fillInput(in *inputMessage, raw []infer.Data, memory *shm.Registry) ([]infer.Data, error) {
	t, _ := tensor.ParseType(in.datatype) // the engine refuses Invalid
	var data infer.Data
	var from infer.Source
	g, err := findRegion(in.params, in.name, memory)
	if err != nil {
		return nil, err
	}
	switch {
	case g.named && in.has:
		return nil, status.Errorf(status.InvalidArgument,
			"unexpected 'content' provided when using shared memory for input tensor '%s' for model '%s'", in.name, m.model)
	case g.named:
		part, err := g.use(m.req, memory)
		if err != nil {
			return nil, err
		}
		from = part
	case in.has && len(m.raw) > 0:
		return nil, status.Errorf(status.InvalidArgument,
			"contents field must not be specified when using raw_input_contents for '%s' for model '%s'", in.name, m.model)
	case in.has:
		if data, err = in.typed(m.req, t); err != nil {
			return nil, err
		}
	case len(raw) > 0:
		data, raw = raw[0], raw[1:]
	default:
		return nil, status.Errorf(status.InvalidArgument,
			"unable to find data for input tensor '%s' for model '%s' in request.", in.name, m.model)
	}
	dst := m.req.AddInput()
	dst.Name, dst.Type, dst.Shape, dst.Data, dst.From = in.name, t, in.shape, data, from
	return raw, nil
}

// fillOutput adds a requested output.
func fillOutput(r *infer.Request, out *outputMessage, memory *shm.Registry) error {
	w := infer.Wanted{Name: out.name}
	g, err := findRegion(out.params, out.name, memory)
	if err != nil {
		return err
	}
	for i := range out.params {
		if p := &out.params[i]; p.Name == "classification" {
			if !p.is(infer.ParamInt) {
				return wrongType("classification", "int64_param")
			}
			if p.Int <= 0 { // in Triton's words
				return status.Errorf(status.InvalidArgument, "invalid value for 'classification' parameter, expected >= 0")
			}
			w.Classes = p.Int
		}
	}
	switch {
	case g.named && w.Classes > 0:
		return status.Errorf(status.InvalidArgument, "output can't set both 'shared_memory_region' and 'classification'")
	case g.named:
		part, err := g.use(r, memory)
		if err != nil {
			return err
		}
		w.To = part
	}
	r.Outputs = append(r.Outputs, w)
	return nil
}

// setParam stores a parameter of the message in the request.
func (m *message) setParam(p *param) error {
	r := m.req
	switch p.Name {
	case "sequence_id":
		switch {
		case p.is(infer.ParamInt):
			r.Sequence.ID = uint64(p.Int)
		case p.is(infer.ParamString):
			r.Sequence.StringID = p.String
		default:
			return wrongType(p.Name, "int64_param or string_param")
		}
	case "sequence_start":
		return setBool(&r.Sequence.Start, p)
	case "sequence_end":
		return setBool(&r.Sequence.End, p)
	case "priority":
		switch {
		case p.is(infer.ParamUint):
			r.Priority = p.Uint
		case !p.is(infer.ParamInt):
			return wrongType(p.Name, "int64_param or uint64_param")
		case p.Int < 0:
			return status.Errorf(status.InvalidArgument, "invalid value for 'priority', expected value >= 0.")
		default:
			r.Priority = uint64(p.Int)
		}
	case "timeout":
		switch {
		case !p.is(infer.ParamInt):
			return wrongType(p.Name, "int64_param")
		case p.Int < 0:
			return status.Errorf(status.InvalidArgument, "invalid value for 'timeout', expected microseconds >= 0.")
		}
		r.Timeout = time.Duration(min(p.Int, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
	case "triton_enable_empty_final_response":
		return setBool(&m.emptyFinal, p)
	default:
		return addParam(r, p)
	}
	return nil
}

// addParam adds a parameter for the model.
func addParam(r *infer.Request, p *param) error {
	if strings.HasPrefix(p.Name, kserve.ReservedPrefix) {
		return status.Errorf(status.InvalidArgument,
			"parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with 'triton_' are allowed: triton_enable_empty_final_response")
	}
	if !p.set || p.Kind == infer.ParamUint {
		return wrongType(p.Name, "int64_param, bool_param, or string_param")
	}
	r.Params = append(r.Params, p.Param)
	return nil
}

func setBool(dst *bool, p *param) error {
	if !p.is(infer.ParamBool) {
		return wrongType(p.Name, "bool_param")
	}
	*dst = p.Bool
	return nil
}

// is reports whether the parameter has a value of that kind.
func (p *param) is(kind infer.ParamKind) bool { return p.set && p.Kind == kind }

func wrongType(name, want string) error {
	return status.Errorf(status.InvalidArgument, "invalid value type for '%s' parameter, expected %s.", name, want)
}
