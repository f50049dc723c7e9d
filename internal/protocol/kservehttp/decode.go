package kservehttp

import (
	"sync"

	"shoal/internal/infer"
	"shoal/internal/shm"
	"shoal/internal/status"
)

// A decoder turns the body of an inference request into an infer.Request in one
// pass over the JSON. If the JSON is malformed anywhere, the client gets that
// error; otherwise it gets the first error in its content, in Triton's order:
// id, parameters, inputs, left-over bytes, outputs. The same holds for a member
// that is given twice: the first one counts.
//
// Strings and binary tensors of the request alias the body.
type decoder struct {
	scanner
	r        *infer.Request
	model    string
	maxInput int64
	binary   []byte // the bytes after the JSON that no input has taken yet
	memory   *shm.Registry

	// allBinary means that outputs which the request does not list are sent as
	// bytes.
	allBinary bool

	refused error // why there is no memory for a tensor

	err  error // the first error in the content
	rank rank  // where it was found
	in   inputFields
	out  outputFields
	dims []int64 // the shape being read
}

// A rank orders errors by when Triton would have found them.
type rank uint8

const (
	rankID rank = iota
	rankParams
	rankInputs
	rankBytes
	rankOutputs
)

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// newDecoder returns a decoder that fills r. release gives it back.
func newDecoder(r *infer.Request, model string, maxInput int64, memory *shm.Registry) *decoder {
	d := decoders.Get().(*decoder)
	d.r, d.model, d.maxInput, d.memory = r, model, maxInput, memory
	return d
}

// release gives the decoder back. The request stays as it is.
func (d *decoder) release() {
	open, dims := d.open[:0], d.dims[:0]
	if cap(open) > 1<<10 {
		open = nil // from a text nested 65,536 deep
	}
	if cap(dims) > 1<<10 {
		dims = nil
	}
	*d = decoder{scanner: scanner{open: open}, dims: dims}
	decoders.Put(d)
}

// decode reads a request from its JSON and the bytes after that.
func (d *decoder) decode(json, binary []byte) error {
	if int64(len(json)) > d.maxInput {
		return errJSONTooLarge(int64(len(json)), d.maxInput)
	}
	d.reset(json)
	d.binary = binary
	if !d.document() {
		return errSyntax(d.fault, d.at)
	}
	return d.err
}

// found records an error in the content, unless an earlier one is known.
func (d *decoder) found(r rank, err error) {
	if d.err == nil || r < d.rank {
		d.err, d.rank = err, r
	}
}

func (d *decoder) document() bool {
	if !d.begin() {
		return false
	}
	var seen members
	if !d.maybeMembers(func(name string) bool { return d.request(name, &seen) }) || !d.end() {
		return false
	}
	if !seen.inputs {
		d.found(rankInputs, errMissing("inputs"))
	}
	if len(d.binary) > 0 {
		d.found(rankBytes, status.Errorf(status.InvalidArgument, "unexpected additional input data for model '%s'", d.model))
	}
	return true
}

// members reads an object; value reads its values.
func (d *decoder) members(value func(name string) bool) bool {
	if !d.enter('}') {
		return true
	}
	for {
		raw, escaped, ok := d.member()
		if !ok || !value(d.name(raw, escaped)) {
			return false
		}
		if more, ok := d.next('}', faultObject); !more {
			return ok
		}
	}
}

// maybeMembers is members for a value that may not be an object; it is then
// skipped.
func (d *decoder) maybeMembers(value func(name string) bool) bool {
	if d.peek() != '{' {
		return d.skip()
	}
	return d.members(value)
}

// list reads the array of that name; element reads its elements. After an error
// in one, the others are only skipped.
func (d *decoder) list(name string, r rank, element func() bool) bool {
	if d.peek() != '[' {
		d.found(r, errType(name, kindArray))
		return d.skip()
	}
	if !d.enter(']') {
		return true
	}
	for {
		read := element
		if d.err != nil && d.rank == r {
			read = d.skip
		}
		if !read() {
			return false
		}
		if more, ok := d.next(']', faultArray); !more {
			return ok
		}
	}
}

// members are those of a request that were read.
type members struct{ id, inputs, outputs, params bool }

// request reads the value of one member of the document.
func (d *decoder) request(name string, seen *members) bool {
	switch {
	case name == "id" && first(&seen.id):
		return d.id()
	case name == "parameters" && first(&seen.params):
		return d.parameters()
	case name == "inputs" && first(&seen.inputs):
		return d.list("inputs", rankInputs, d.input)
	case name == "outputs" && first(&seen.outputs):
		return d.list("outputs", rankOutputs, d.output)
	}
	return d.skip()
}

// first reports whether a member has not been seen before, and marks it.
func first(seen *bool) bool {
	was := *seen
	*seen = true
	return !was
}

// name returns a member's name. Escapes in a name are rare and use memory of
// the request.
func (d *decoder) name(raw []byte, escaped bool) string {
	if !escaped {
		return alias(raw)
	}
	return alias(appendUnescaped(d.r.Grow(len(raw))[:0], raw))
}

// text reads a string. It returns isString false, and skips the value, when it
// is of another kind.
func (d *decoder) text() (text string, isString, ok bool) {
	if d.peek() != '"' {
		return "", false, d.skip()
	}
	raw, escaped, ok := d.str()
	if !ok {
		return "", false, false
	}
	return d.name(raw, escaped), true, true
}

// uint reads a non-negative integer, or skips another value.
func (d *decoder) uint() (u uint64, isUint, ok bool) {
	n, isNumber, ok := d.numeric()
	if !isNumber {
		return 0, false, ok
	}
	u, isUint = n.unsigned()
	return u, isUint, true
}

// numeric reads a number, or skips another value.
func (d *decoder) numeric() (n number, isNumber, ok bool) {
	switch d.peek() {
	case '"', '{', '[', 't', 'f', 'n':
		return number{}, false, d.skip()
	}
	n, ok = d.number()
	return n, ok, ok
}

// truth reads true or false, or skips another value.
func (d *decoder) truth() (value, isBool, ok bool) {
	switch d.peek() {
	case 't':
		return true, true, d.literal("true")
	case 'f':
		return false, true, d.literal("false")
	}
	return false, false, d.skip()
}

func (d *decoder) id() bool {
	id, isString, ok := d.text()
	if !isString && ok {
		d.found(rankID, errType("id", kindString))
	}
	d.r.ID = id
	return ok
}
