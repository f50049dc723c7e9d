package kservehttp

import (
	"math"
	"slices"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A presence is whether a member was there and of the right kind.
type presence uint8

const (
	absent presence = iota
	wrong
	good
)

func present(isRight bool) presence {
	if isRight {
		return good
	}
	return wrong
}

// inputFields are the fields of the input being read. They are checked when all
// of it was read, in Triton's order.
type inputFields struct {
	name, datatype, shape, data presence
	binarySize                  presence
	region                      regionFields

	nameText  string
	typed     tensor.Type // Invalid when datatype names none
	dims      tensor.Shape
	shapeKind jsonKind // what shape, or one of its dimensions, should have been
	hugeDim   bool     // a dimension does not fit an int64
	highRank  bool     // there are more dimensions than dims holds
	size      uint64   // of the binary data

	// JSON data is read at once when everything that it depends on is known,
	// which is usual; otherwise dataAt is its position.
	dataRead bool
	dataAt   int
	tensor   []byte
	dataErr  error
}

// maxRank bounds the dimensions of a shape, maxTensors the inputs or outputs of
// a request.
const (
	maxRank    = 256
	maxTensors = 1 << 14
)

func (d *decoder) input() bool {
	d.in = inputFields{}
	if !d.maybeMembers(d.inputMember) {
		return false
	}
	if err := d.finishInput(); err != nil {
		d.found(rankInputs, err)
	}
	return true
}

func (d *decoder) inputMember(name string) bool {
	in := &d.in
	var is, ok bool
	switch {
	case name == "name" && in.name == absent:
		in.nameText, is, ok = d.text()
		in.name = present(is)
		return ok
	case name == "datatype" && in.datatype == absent:
		var text string
		text, is, ok = d.text()
		in.typed, _ = tensor.ParseType(text)
		in.datatype = present(is)
		return ok
	case name == "shape" && in.shape == absent:
		return d.shape()
	case name == "data" && in.data == absent:
		return d.data()
	case name == "parameters":
		return d.maybeMembers(d.inputParameter)
	}
	return d.skip()
}

func (d *decoder) shape() bool {
	in := &d.in
	in.shape, in.shapeKind = wrong, kindArray
	if d.peek() != '[' {
		return d.skip()
	}
	in.shape, d.dims = good, d.dims[:0]
	if d.enter(']') {
		for more := true; more; {
			u, isUint, ok := d.uint()
			if !ok {
				return false
			}
			if !isUint {
				in.shape, in.shapeKind = wrong, kindUint
			}
			in.hugeDim = in.hugeDim || u > math.MaxInt64
			if in.highRank = len(d.dims) == maxRank; !in.highRank {
				d.dims = append(d.dims, int64(min(u, math.MaxInt64)))
			}
			if more, ok = d.next(']', faultArray); !ok {
				return false
			}
		}
	}
	in.dims = append(d.r.Dims(len(d.dims)), d.dims...)
	return true
}

// inputParameter reads a parameter of an input, if it is a known one.
func (d *decoder) inputParameter(name string) bool {
	if name == "binary_data_size" && d.in.binarySize == absent {
		n, is, ok := d.uint()
		d.in.size, d.in.binarySize = n, present(is)
		return ok
	}
	return d.regionParameter(name, &d.in.region)
}

// data reads the JSON data of an input, or defers that.
func (d *decoder) data() bool {
	in := &d.in
	in.data, in.dataAt = present(d.peek() == '['), d.pos
	if in.name != good || in.typed == tensor.Invalid || in.shape != good || in.hugeDim || in.highRank {
		return d.skip()
	}
	in.dataRead = true
	return d.jsonData(in.typed)
}

// finishInput adds the input that was read to the request, or records its
// error.
func (d *decoder) finishInput() error {
	in := &d.in
	if err := in.checkSource(); err != nil {
		return err
	}
	switch {
	case in.name != good:
		return in.name.fault("name", kindString)
	case in.datatype != good:
		return in.datatype.fault("datatype", kindString)
	case in.shape != good:
		return in.shape.fault("shape", in.shapeKind)
	}
	if in.typed == tensor.Invalid {
		return status.Errorf(status.InvalidArgument, "invalid datatype for input %s", in.nameText)
	}
	if in.highRank {
		return status.Errorf(status.InvalidArgument, "invalid shape for input '%s': it has more than %d dimensions", in.nameText, maxRank)
	}
	if in.hugeDim {
		return errShapeOverflow(in.nameText, in.dims)
	}
	var data []byte
	var from infer.Source
	err := in.region.fault()
	switch {
	case err != nil:
	case in.region.name != absent:
		from, err = d.use(&in.region)
	default:
		data, err = d.inputData()
	}
	if err != nil && !d.named(in.nameText) { // a duplicate is worse: the engine says so
		return err
	}
	if len(d.r.Inputs) == maxTensors {
		return status.Errorf(status.InvalidArgument, "the request has more than %d inputs", maxTensors)
	}
	if err := d.r.ClaimEntry(len(d.r.Inputs)); err != nil {
		return err
	}
	to := d.r.AddInput()
	to.Name, to.Type, to.Shape, to.Data, to.From = in.nameText, in.typed, in.dims, infer.Data{First: data, Private: true}, from
	return nil
}

// named reports whether the request has an input of that name already.
func (d *decoder) named(name string) bool {
	return slices.ContainsFunc(d.r.Inputs, func(in infer.Input) bool { return in.Name == name })
}

// fault returns the error of a member that is missing or wrong.
func (p presence) fault(name string, kind jsonKind) error {
	if p == absent {
		return errMissing(name)
	}
	return errType(name, kind)
}

// checkSource checks that an input has exactly one source of data.
func (in *inputFields) checkSource() error {
	set, n := "", 0
	if in.data != absent {
		set, n = set+" 'data'", n+1
	}
	if in.binarySize != absent {
		set, n = set+" 'binary_data_size'", n+1
	}
	if in.region.name != absent {
		set, n = set+" 'shared_memory_region'", n+1
	}
	switch n {
	case 1:
		return nil
	case 0:
		set = "no field is set"
	default:
		set = "set" + set
	}
	return status.Errorf(status.InvalidArgument, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "+
		"'shared_memory_region' in 'parameters'. But %s", set)
}

// inputData returns the content of the input that was read.
func (d *decoder) inputData() ([]byte, error) {
	in := &d.in
	switch {
	case in.binarySize == wrong:
		return nil, errType("binary_data_size", kindUint)
	case in.binarySize == good:
		have := uint64(len(d.binary))
		if in.size > have {
			return nil, status.Errorf(status.InvalidArgument, "unexpected size for input '%s', expecting %d additional bytes for model '%s'",
				in.nameText, in.size-have, d.model)
		}
		data := d.binary[:in.size:in.size]
		d.binary = d.binary[in.size:]
		return data, nil
	}
	if !in.dataRead {
		at := d.pos
		d.pos = in.dataAt
		d.jsonData(in.typed) // its form was checked before
		d.pos = at
	}
	return in.tensor, in.dataErr
}
