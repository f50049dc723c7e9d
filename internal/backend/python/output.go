package python

import (
	"encoding/binary"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// An outputRecord is the worker's description of an output.
type outputRecord struct {
	port  *port
	index int
	typ   tensor.Type
	shape tensor.Shape
	data  []byte
}

// output reads one output of requests with so many rows together. An output
// that does not fit the configuration fails only these requests.
//
// Triton checks neither type nor shape, and models written for it rely on that.
// So an output that the handler gave for one request alone is passed on as it is.
func (rd *reader) output(part []*infer.Request, rows int, alone bool) error {
	o, err := rd.record()
	if err != nil {
		return err
	}
	if o.typ != o.port.Type && !alone {
		fail(part, status.Errorf(status.Internal, "model '%s': output '%s' has data type %s, want %s; the model's code or the data_type in its configuration is wrong",
			rd.model.sig.Name, o.port.Name, o.typ.ConfigName(), o.port.Type.ConfigName()))
		return nil
	}
	if !o.port.batched && len(part) > 1 {
		fail(part, status.Errorf(status.Internal, "model '%s': output '%s' was given for %d requests together, but the model has no batch dimension; answer each request",
			rd.model.sig.Name, o.port.Name, len(part)))
		return nil
	}
	if given(part, o.index) {
		fail(part, status.Errorf(status.Internal, "model '%s': output '%s' is given twice", rd.model.sig.Name, o.port.Name))
		return nil
	}
	var room [maxRank]int64
	shape, err := o.port.clientShape(room[:0], o.shape, rows)
	if err != nil && alone {
		shape, err = o.shape, nil
	}
	if err != nil {
		fail(part, forModel(rd.model.sig.Name, err))
		return nil
	}
	if o.typ == tensor.Bytes {
		if o.data, err = rd.strings(&o); err != nil {
			return err
		}
	}
	rd.hand(&o, part, shape, rows)
	return nil
}

// given reports whether the requests, which are answered together, already have
// an output.
func given(part []*infer.Request, index int) bool {
	for _, r := range part {
		for i := range r.Response.Outputs {
			if r.Response.Outputs[i].Index == index {
				return true
			}
		}
	}
	return false
}

// record reads the description of an output and finds its data.
func (rd *reader) record() (o outputRecord, err error) {
	b, err := rd.next(outputSize)
	if err != nil {
		return o, err
	}
	o.index, o.typ = int(binary.LittleEndian.Uint16(b)), tensor.Type(b[2])
	rank := int(b[3])
	offset, size := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if o.index >= len(rd.model.outputs) || rank > maxRank {
		return o, wireFault("an output has number %d and %d dimensions", o.index, rank)
	}
	o.port = &rd.model.outputs[o.index]
	dims, err := rd.next(8 * rank)
	if err != nil {
		return o, err
	}
	rd.dims = rd.dims[:0]
	for ; len(dims) > 0; dims = dims[8:] {
		rd.dims = append(rd.dims, int64(binary.LittleEndian.Uint64(dims)))
	}
	o.shape = rd.dims
	if offset > uint64(len(rd.data)) || size > uint64(len(rd.data))-offset {
		return o, wireFault("output '%s' has %d bytes at %d, beyond the %d of the result", o.port.Name, size, offset, len(rd.data))
	}
	o.data = rd.data[offset : offset+size : offset+size]
	if o.typ == tensor.Bytes {
		if n, ok := o.shape.Elements(); !ok || uint64(n) > size/4 {
			return o, wireFault("output '%s' has %d bytes for strings of shape %s", o.port.Name, size, o.shape)
		}
		return o, nil
	}
	if n, ok := o.shape.Bytes(o.typ); !ok || uint64(n) != size {
		return o, wireFault("output '%s' has %d bytes for shape %s of %s", o.port.Name, size, o.shape, o.typ)
	}
	return o, nil
}

// strings returns an output's strings after checking that their number fits the
// shape. It copies them first, so that they cannot change.
func (rd *reader) strings(o *outputRecord) ([]byte, error) {
	text := o.data
	if rd.text != nil {
		begin := len(*rd.text)
		*rd.text = append(*rd.text, text...)
		text = (*rd.text)[begin:len(*rd.text):len(*rd.text)]
	}
	n, _ := o.shape.Elements()
	end, ok := walkStrings(text, n)
	if !ok || end != len(text) {
		return nil, wireFault("output '%s' does not have the %d strings of its shape", o.port.Name, n)
	}
	return text, nil
}

// walkStrings returns where the first n strings in b end.
func walkStrings(b []byte, n int64) (end int, ok bool) {
	for ; n > 0; n-- {
		if len(b)-end < 4 {
			return 0, false
		}
		size := int(binary.LittleEndian.Uint32(b[end:]))
		if end += 4; size > len(b)-end {
			return 0, false
		}
		end += size
	}
	return end, true
}

// hand gives each request its rows of an output, if it wants that output.
func (rd *reader) hand(o *outputRecord, part []*infer.Request, shape tensor.Shape, rows int) {
	data := o.data
	elements, _ := shape.Elements()
	for _, r := range part {
		mine := data
		if len(part) > 1 {
			size := len(o.data) / rows * r.Rows
			if o.typ == tensor.Bytes {
				size, _ = walkStrings(data, elements/int64(rows)*int64(r.Rows))
			}
			mine, data = data[:size:size], data[size:]
		}
		if r.Err != nil || !wants(r, o.port.Name) {
			continue
		}
		r.Response.Ordered = true
		out := r.Response.AddOutput()
		out.Name, out.Type, out.Index, out.Data = o.port.Name, o.typ, o.index, mine
		out.Shape = append(out.Shape[:0], shape...)
		if len(part) > 1 {
			out.Shape[0] = int64(r.Rows)
		}
	}
}

// wants reports whether a request asked for an output.
func wants(r *infer.Request, name string) bool {
	if len(r.Outputs) == 0 {
		return true
	}
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return true
		}
	}
	return false
}
