package kservehttp

import (
	"encoding/binary"
	"math"

	"shoal/internal/reject"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// maxNesting is the depth at which nested data is refused.
const maxNesting = 100

// A dataFault is what is wrong with a tensor's JSON data although it is valid
// JSON.
type dataFault uint8

const (
	dataGood dataFault = iota
	dataKind
	dataCount
	dataDepth
	dataMemory // there is no memory for it: the decoder's refused says why
	dataBroken // it is not JSON: the scanner's fault says why
)

// jsonData reads the JSON data of the input in d.in into memory of the request.
// It stores errors of the data in d.in.dataErr and reports whether the data is
// valid JSON.
func (d *decoder) jsonData(t tensor.Type) bool {
	in := &d.in
	start := d.pos
	n, ok := in.dims.Elements()
	if len(in.dims) == 0 {
		n = 0 // the engine names the missing shape; no model has a scalar here
	}
	if in.dataErr = d.checkData(t, n, ok); in.dataErr != nil || n == 0 {
		return d.skip()
	}
	var why dataFault
	if t == tensor.Bytes {
		in.tensor, why = d.stringData()
	} else {
		in.tensor, why = d.numberData(t, n)
	}
	switch why {
	case dataBroken:
		return false
	case dataGood:
		return true
	}
	if in.dataErr = why.err(t); why == dataMemory {
		in.dataErr = d.refused
	}
	d.pos = start
	return d.skip()
}

func (f dataFault) err(t tensor.Type) error {
	switch f {
	case dataKind:
		if t == tensor.Bytes {
			return status.Errorf(status.Internal, "Unable to parse JSON bytes array: %s", elementKind(t))
		}
		return errType("data", elementKind(t))
	case dataDepth:
		return status.Rejectf(reject.Malformed, status.InvalidArgument, "JSON nesting depth exceeds maximum allowed limit (%d)", maxNesting)
	}
	return status.Errorf(status.Internal, "Unable to parse 'data': Shape does not match true shape of 'data' field")
}

// checkData checks what can be known of JSON data before it is read; n is the
// number of elements of the shape, if that is known.
func (d *decoder) checkData(t tensor.Type, n int64, countable bool) error {
	in := &d.in
	if !countable {
		return errShapeOverflow(in.nameText, in.dims)
	}
	if n == 0 {
		return nil // whatever the data is
	}
	if in.data != good {
		return errType("data", kindArray)
	}
	if size := int64(t.Size()); size > 0 {
		if n > math.MaxInt64/size {
			return status.Errorf(status.InvalidArgument,
				"byte size overflow for input '%s': element count (%d) * data type size (%d) exceeds maximum allowed size (%d)",
				in.nameText, n, size, int64(math.MaxInt64))
		}
		if n*size > d.maxInput {
			return status.Errorf(status.InvalidArgument,
				"JSON input '%s' has a byte_size (%d bytes) that exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.",
				in.nameText, n*size, d.maxInput)
		}
	}
	if t == tensor.FP16 || t == tensor.BF16 {
		return status.Errorf(status.InvalidArgument,
			"receiving %s data via JSON is not supported. Please use the binary data format for input %s", t, in.nameText)
	}
	return nil
}

// numberData reads n numbers or booleans. A shape that needs more than the text
// can hold allocates no more than the text's own size.
func (d *decoder) numberData(t tensor.Type, n int64) ([]byte, dataFault) {
	most := int64(len(d.b)-d.pos) / 2 // an element and what follows it
	buf, err := d.r.GrowWithin(int(min(n, most)) * t.Size())
	if err != nil {
		d.refused = err
		return nil, dataMemory
	}
	got, why := d.elements(t, buf)
	if why == dataGood && int64(got) != n {
		why = dataCount
	}
	return buf, why
}

// elements reads arrays of t's elements, nested in any way, into buf, and
// returns how many there were.
func (d *decoder) elements(t tensor.Type, buf []byte) (int, dataFault) {
	size := t.Size()
	depth, got, off := 0, 0, 0
	for {
		// Here a value begins, and the current byte is its first.
		if d.peek() == '[' {
			if depth++; depth >= maxNesting {
				return got, dataDepth
			}
			if d.enter(']') {
				continue
			}
			depth--
		} else {
			if off == len(buf) {
				return got, dataCount
			}
			if why := d.element(t, buf[off:off+size]); why != dataGood {
				return got, why
			}
			got++
			off += size
			if p := d.pos; p+1 < len(d.b) && d.b[p] == ',' && d.b[p+1] > ' ' && depth > 0 {
				d.pos++ // the usual case, without the calls below
				continue
			}
		}
		for {
			if depth == 0 {
				return got, dataGood
			}
			more, ok := d.next(']', faultArray)
			if !ok {
				return got, dataBroken
			}
			if more {
				break
			}
			depth--
		}
	}
}

// element reads one number or boolean to the start of to.
func (d *decoder) element(t tensor.Type, to []byte) dataFault {
	if t == tensor.Bool {
		return d.truthElement(to)
	}
	n, ok := d.number()
	if !ok {
		return d.notNumber()
	}
	switch t {
	case tensor.FP32:
		binary.LittleEndian.PutUint32(to, math.Float32bits(float32(n.float())))
	case tensor.FP64:
		binary.LittleEndian.PutUint64(to, math.Float64bits(n.float()))
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		u, is := n.unsigned()
		if !is {
			return dataKind
		}
		putInteger(to, u)
	default:
		i, is := n.signed()
		if !is {
			return dataKind
		}
		putInteger(to, uint64(i))
	}
	return dataGood
}

// notNumber distinguishes a value that is not a number from invalid JSON.
func (d *decoder) notNumber() dataFault {
	switch d.peek() {
	case '"', '{', 't', 'f', 'n':
		d.fault = noFault
		return dataKind
	}
	return dataBroken
}

func (d *decoder) truthElement(to []byte) dataFault {
	v, is, ok := d.truth()
	switch {
	case !ok:
		return dataBroken
	case !is:
		return dataKind
	}
	to[0] = 0
	if v {
		to[0] = 1
	}
	return dataGood
}

// putInteger stores the low bytes of v: as many as to has. Triton does not
// check the range of integers either.
func putInteger(to []byte, v uint64) {
	switch len(to) {
	case 1:
		to[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(to, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(to, uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(to, v)
	}
}
