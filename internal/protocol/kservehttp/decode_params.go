package kservehttp

import (
	"math"
	"strings"
	"time"

	"shoal/internal/infer"
	"shoal/internal/protocol/kserve"
	"shoal/internal/status"
)

// parameters reads the parameters of the whole request.
func (d *decoder) parameters() bool {
	if d.peek() != '{' {
		d.found(rankParams, status.Errorf(status.Internal, "failed to get request params.: attempt to get members for non-object"))
		return d.skip()
	}
	return d.members(d.parameter)
}

func (d *decoder) parameter(name string) bool {
	switch name {
	case "sequence_id":
		return d.sequenceID()
	case "sequence_start":
		return d.flag(name, &d.r.Sequence.Start)
	case "sequence_end":
		return d.flag(name, &d.r.Sequence.End)
	case "binary_data_output":
		return d.flag(name, &d.allBinary)
	case "priority":
		return d.count(name, &d.r.Priority)
	case "timeout":
		var us uint64
		ok := d.count(name, &us)
		d.r.Timeout = time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
		return ok
	}
	if strings.HasPrefix(name, kserve.ReservedPrefix) {
		d.found(rankParams, status.Errorf(status.InvalidArgument,
			"parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."))
		return d.skip()
	}
	return d.custom(name)
}

// flag reads a reserved parameter that is true or false.
func (d *decoder) flag(name string, to *bool) bool {
	v, isBool, ok := d.truth()
	if ok && !isBool {
		d.found(rankParams, errType(name, kindBool))
	}
	*to = v
	return ok
}

// count reads a reserved parameter that is a non-negative integer.
func (d *decoder) count(name string, to *uint64) bool {
	v, isUint, ok := d.uint()
	if ok && !isUint {
		d.found(rankParams, errType(name, kindUint))
	}
	*to = v
	return ok
}

func (d *decoder) sequenceID() bool {
	if d.peek() == '"' {
		text, _, ok := d.text()
		d.r.Sequence.StringID = text
		return ok
	}
	id, isUint, ok := d.uint()
	if ok && !isUint {
		d.found(rankParams, errType("sequence_id", kindString))
	}
	d.r.Sequence.ID = id
	return ok
}

// maxParams bounds the parameters of a request. Each takes many times the
// memory of its text.
const maxParams = 1024

// custom reads a parameter that goes to the model.
func (d *decoder) custom(name string) bool {
	if len(d.r.Params) == maxParams {
		d.found(rankParams, status.Errorf(status.InvalidArgument, "the request has more than %d parameters; send fewer", maxParams))
		return d.skip()
	}
	p := infer.Param{Name: name}
	ok := true
	switch d.peek() {
	case '"':
		p.Kind = infer.ParamString
		p.String, _, ok = d.text()
	case 't', 'f':
		p.Kind = infer.ParamBool
		p.Bool, _, ok = d.truth()
	case '{', '[', 'n':
		d.found(rankParams, status.Errorf(status.InvalidArgument,
			"parameter '%s' has invalid type. It should be either 'int', 'bool', or 'string'.", name))
		return d.skip()
	default:
		var n number
		n, ok = d.number()
		setNumber(&p, n)
	}
	d.r.Params = append(d.r.Params, p)
	return ok
}

func setNumber(p *infer.Param, n number) {
	if i, ok := n.signed(); ok {
		p.Kind, p.Int = infer.ParamInt, i
	} else if u, ok := n.unsigned(); ok {
		p.Kind, p.Uint = infer.ParamUint, u
	} else {
		p.Kind, p.Float = infer.ParamFloat, n.float()
	}
}
