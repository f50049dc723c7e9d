package kservehttp

import (
	"cmp"
	"math"

	"shoal/internal/infer"
	"shoal/internal/status"
)

// outputFields are the fields of the requested output being read.
type outputFields struct {
	name, classes, binary presence
	region                regionFields
	want                  infer.Wanted
}

func (d *decoder) output() bool {
	d.out = outputFields{}
	if !d.maybeMembers(d.outputMember) {
		return false
	}
	err := cmp.Or(d.out.check(), d.out.region.fault())
	if err == nil && len(d.r.Outputs) == maxTensors {
		err = status.Errorf(status.InvalidArgument, "the request names more than %d outputs", maxTensors)
	}
	if err == nil {
		err = d.r.ClaimEntry(len(d.r.Outputs))
	}
	if err == nil && d.out.region.name != absent {
		d.out.want.To, err = d.place(&d.out.region)
	}
	if err != nil {
		d.found(rankOutputs, err)
		return true
	}
	d.r.Outputs = append(d.r.Outputs, d.out.want)
	return true
}

func (d *decoder) outputMember(name string) bool {
	switch {
	case name == "name" && d.out.name == absent:
		text, is, ok := d.text()
		d.out.want.Name, d.out.name = text, present(is)
		return ok
	case name == "parameters" && d.peek() == '{':
		return d.members(d.outputParameter)
	}
	return d.skip()
}

func (d *decoder) outputParameter(name string) bool {
	out := &d.out
	switch {
	case name == "classification" && out.classes == absent:
		n, is, ok := d.uint()
		out.want.Classes, out.classes = int64(min(n, math.MaxInt64)), present(is)
		return ok
	case name == "binary_data" && out.binary == absent:
		v, is, ok := d.truth()
		out.want.Binary, out.binary = v, present(is)
		return ok
	}
	return d.regionParameter(name, &out.region)
}

// check returns the error of the output that was read.
func (out *outputFields) check() error {
	switch {
	case out.name != good:
		return out.name.fault("name", kindString)
	case out.classes == wrong:
		return status.Errorf(status.Internal, "Unable to set 'classification': %s", kindUint)
	case out.region.name != absent && out.classes == good:
		return status.Errorf(status.InvalidArgument, "Output can't set both 'shared_memory_region' and 'classification'")
	case out.region.name != absent && out.want.Binary:
		return status.Errorf(status.InvalidArgument, "Output can't set both 'shared_memory_region' and 'binary_data'")
	case out.binary == wrong:
		return errType("binary_data", kindBool)
	}
	return nil
}
