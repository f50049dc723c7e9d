package kservehttp

import (
	"math"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// generate reads the body of a generate request: one object whose members are
// inputs when the model has one of that name, and otherwise parameters. Members
// of the member parameters are treated in the same way.
func (d *decoder) generate(json []byte, sig *model.Signature) error {
	d.reset(json)
	if !d.generateDocument(sig) {
		return errSyntax(d.fault, d.at)
	}
	return d.err
}

func (d *decoder) generateDocument(sig *model.Signature) bool {
	if !d.begin() {
		return false
	}
	if d.peek() != '{' {
		d.found(rankID, status.Errorf(status.Internal, "attempt to get members for non-object"))
		return d.skip() && d.end()
	}
	return d.members(func(name string) bool { return d.generateMember(name, sig) }) && d.end()
}

func (d *decoder) generateMember(name string, sig *model.Signature) bool {
	switch name {
	case "id":
		at := d.pos
		if !d.id() {
			return false
		}
		if d.err != nil {
			return true
		}
		d.pos = at // a model may look for it among the parameters too
	case "parameters":
		return d.generateParameters(sig)
	}
	return d.generateValue(name, sig)
}

// generateParameters reads the member parameters. Errors in it have its name.
func (d *decoder) generateParameters(sig *model.Signature) bool {
	if d.peek() != '{' {
		d.found(rankParams, status.Errorf(status.Internal, "Expected JSON object for keyword: 'parameters': %s", kindObject))
		return d.skip()
	}
	before := d.err
	ok := d.members(func(name string) bool { return d.generateValue(name, sig) })
	if before == nil && d.err != nil {
		d.err = status.Errorf(status.CodeOf(d.err), "Converting keyword: 'parameters': %s", status.Public(d.err))
	}
	return ok
}

// generateValue reads an input or a parameter.
func (d *decoder) generateValue(name string, sig *model.Signature) bool {
	if i := sig.Input(name); i >= 0 {
		return d.generateInput(&sig.Inputs[i])
	}
	return d.custom(name)
}

// generateInput reads the value of an input: one element, or an array of them.
func (d *decoder) generateInput(t *model.Tensor) bool {
	start := d.pos
	n, ok := d.elementCount()
	if !ok {
		return false
	}
	end := d.pos
	d.pos = start
	if err := d.addValue(t, n); err != nil {
		d.found(rankParams, err)
	}
	d.pos = end
	return true
}

// elementCount skips a value and returns how many elements it has.
func (d *decoder) elementCount() (n int64, ok bool) {
	if d.peek() != '[' {
		return 1, d.skip()
	}
	if !d.enter(']') {
		return 0, true
	}
	for {
		if !d.skip() {
			return 0, false
		}
		n++
		if more, ok := d.next(']', faultArray); !more {
			return n, ok
		}
	}
}

// addValue adds an input of n elements, which are read from here, to the
// request. The text is known to be valid JSON.
func (d *decoder) addValue(t *model.Tensor, n int64) error {
	if len(d.r.Inputs) == maxGenerated {
		return status.Errorf(status.InvalidArgument, "the request has more than %d inputs; send each once", maxGenerated)
	}
	shape, ok := fitShape(d.r.Dims(len(t.Full)), t.Full, n)
	if !ok {
		return status.Errorf(status.InvalidArgument, "The schema can not convert input '%s' to tensor with proper shape", t.Name)
	}
	d.in = inputFields{nameText: t.Name, dims: shape, data: good}
	if err := d.checkData(t.Type, n, true); err != nil {
		return err
	}
	var data []byte
	var why dataFault
	if t.Type == tensor.Bytes {
		data, why = d.stringData()
	} else {
		data, why = d.numberData(t.Type, n)
	}
	if why != dataGood {
		return why.err(t.Type)
	}
	in := d.r.AddInput()
	in.Name, in.Type, in.Shape, in.Data = t.Name, t.Type, shape, infer.Data{First: data}
	return nil
}

// maxGenerated bounds the inputs of a generate request. No model has so many;
// the engine refuses duplicates.
const maxGenerated = 1024

// fitShape appends to dst the shape that n elements have in a tensor of shape
// full: the fixed dimensions divide the count, the innermost variable one takes
// the rest and the other variable ones are 1. It returns false when that does
// not divide evenly.
func fitShape(dst, full tensor.Shape, n int64) (tensor.Shape, bool) {
	fixed, free := int64(1), -1
	for i, dim := range full {
		if dim < 0 {
			free = i
			dst = append(dst, 1)
			continue
		}
		if dim > 0 && fixed > math.MaxInt64/dim {
			return nil, false
		}
		fixed *= dim
		dst = append(dst, dim)
	}
	switch {
	case fixed == 0:
		return dst, n == 0
	case n%fixed != 0:
		return nil, false
	case free >= 0:
		dst[free] = n / fixed
		return dst, true
	}
	return dst, n == fixed
}
