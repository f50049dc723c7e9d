package kservegrpc

import (
	"errors"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/accesslog"
	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/tensor"
	"shoal/internal/trace"
)

// A message is a ModelInferRequest from the wire: what the standard codec would
// return, but its strings and tensors stay in the received memory. It belongs
// to one call; release gives it back.
type message struct {
	req    *infer.Request   // the request to be made of it, and memory for both
	data   mem.BufferSlice  // what was received; a reference is held
	trace  *trace.Trace     // nil when it is not traced
	access *accesslog.Entry // nil when there is no access log

	model, version, id string
	params             []param
	inputs             []inputMessage
	outputs            []outputMessage
	raw                []infer.Data
	// emptyFinal asks for a final answer even if it is empty; fill sets it.
	emptyFinal bool

	// Memory for parts of the inputs and outputs.
	tensorParams []param
	contents     [][]byte
	pieces       [][]byte
	dims         []int64
}

type inputMessage struct {
	name, datatype string
	shape          tensor.Shape
	params         []param
	// contents are the encoded bytes of the typed contents, in several parts
	// when the field came several times; has distinguishes an empty one from
	// none.
	contents [][]byte
	has      bool
	counts   contentCounts
}

type outputMessage struct {
	name   string
	params []param
}

var messages = sync.Pool{New: func() any { return new(message) }}

func newMessage() *message { return messages.Get().(*message) }

// release gives back the request, the received memory and the message itself.
// The request's response must have been encoded.
func (m *message) release() {
	m.reset()
	if cap(m.params)+cap(m.tensorParams) > maxKept || cap(m.inputs)+cap(m.outputs) > maxKept ||
		cap(m.raw)+cap(m.contents)+cap(m.pieces)+cap(m.dims) > maxKept {
		return // the garbage collector takes an unusually large one
	}
	messages.Put(m)
}

// maxKept is the capacity that a pooled message keeps; 602 KB arrive in some 40
// pieces.
const maxKept = 1 << 10

// reset empties the message. It may be called on an empty one.
func (m *message) reset() {
	if m.req != nil {
		m.req.Release()
	}
	m.data.Free()
	clear(m.params)
	clear(m.inputs)
	clear(m.outputs)
	clear(m.raw)
	clear(m.tensorParams)
	clear(m.contents)
	clear(m.pieces)
	*m = message{
		params: m.params[:0], inputs: m.inputs[:0], outputs: m.outputs[:0], raw: m.raw[:0],
		tensorParams: m.tensorParams[:0], contents: m.contents[:0], pieces: m.pieces[:0], dims: m.dims[:0],
	}
}

// decode reads a ModelInferRequest. It accepts and refuses exactly what
// proto.Unmarshal does, with the same meaning, except lists so long that no
// model could need them.
func (m *message) decode(data mem.BufferSlice, budget *inflight.Budget) error {
	m.reset() // grpc reads on after a first message, to check that there is none
	data.Ref()
	m.data = data
	m.req = infer.NewRequest()
	m.req.Claim = budget.Claim()
	s := newSegments(data, m.req)
	for s.left > 0 {
		tag, ok := s.varint()
		if !ok {
			return errWire
		}
		num, typ := protowire.DecodeTag(tag)
		if num < protowire.MinValidNumber || num > protowire.MaxValidNumber {
			return errWire
		}
		if err := m.field(&s, num, typ); err != nil {
			return err
		}
	}
	m.params = latest(m.params)
	return nil
}

// field reads one field of the message.
func (m *message) field(s *segments, num protowire.Number, typ protowire.Type) error {
	if typ != protowire.BytesType || num > 7 {
		if !s.skipField(num, typ) {
			return errWire
		}
		return nil
	}
	if num == 7 {
		var d infer.Data
		var ok bool
		if d, m.pieces, ok = s.data(m.pieces); !ok {
			return errWire
		}
		m.raw = append(m.raw, d)
		return m.checkEntries(len(m.raw))
	}
	b, ok := s.bytes()
	if !ok {
		return errWire
	}
	var err error
	switch num {
	case 1:
		m.model, err = text(b)
	case 2:
		m.version, err = text(b)
	case 3:
		m.id, err = text(b)
	case 4:
		m.params, err = m.param(m.params, b)
	case 5:
		err = m.input(b)
	case 6:
		err = m.output(b)
	}
	return err
}

// An empty element of a list takes two bytes on the wire and a hundred here.
// These bounds keep a message from taking many times its size in memory.
const (
	maxEntries = 1 << 14
	maxDims    = 1 << 10
)

var errTooMany = errors.New("the message has too many tensors, parameters or dimensions")

// checkEntries checks whether a list may have n elements, the last of which has
// just come.
func (m *message) checkEntries(n int) error {
	if n > maxEntries {
		return errTooMany
	}
	return m.req.ClaimEntry(n)
}

// input reads an InferInputTensor.
func (m *message) input(b []byte) error {
	var in inputMessage
	params, contents := len(m.tensorParams), len(m.contents)
	m.dims = m.dims[:0]
	for len(b) > 0 {
		num, typ, rest, err := nextField(b)
		if err != nil {
			return err
		}
		var v []byte
		switch {
		case num == 3 && typ == protowire.VarintType:
			var d uint64
			if d, rest, err = takeVarint(rest); err == nil {
				m.dims, err = appendDim(m.dims, d)
			}
		case num > 5 || typ != protowire.BytesType:
			rest, err = skipValue(num, typ, rest)
		case num == 1:
			in.name, rest, err = takeString(rest)
		case num == 2:
			in.datatype, rest, err = takeString(rest)
		default:
			if v, rest, err = takeBytes(rest); err != nil {
				return err
			}
			switch num {
			case 3:
				m.dims, err = appendDims(m.dims, v)
			case 4:
				m.tensorParams, err = m.param(m.tensorParams, v)
			case 5:
				in.has = true
				m.contents = append(m.contents, v)
				if err = m.checkEntries(len(m.contents)); err == nil {
					err = in.counts.add(v)
				}
			}
		}
		if err != nil {
			return err
		}
		b = rest
	}
	in.shape = append(m.req.Dims(len(m.dims)), m.dims...)
	in.params = latest(m.tensorParams[params:len(m.tensorParams):len(m.tensorParams)])
	in.contents = m.contents[contents:len(m.contents):len(m.contents)]
	m.inputs = append(m.inputs, in)
	return m.checkEntries(len(m.inputs))
}

// output reads an InferRequestedOutputTensor.
func (m *message) output(b []byte) error {
	var out outputMessage
	params := len(m.tensorParams)
	for len(b) > 0 {
		num, typ, rest, err := nextField(b)
		if err != nil {
			return err
		}
		var v []byte
		switch {
		case num == 1 && typ == protowire.BytesType:
			out.name, rest, err = takeString(rest)
		case num == 2 && typ == protowire.BytesType:
			if v, rest, err = takeBytes(rest); err == nil {
				m.tensorParams, err = m.param(m.tensorParams, v)
			}
		default:
			rest, err = skipValue(num, typ, rest)
		}
		if err != nil {
			return err
		}
		b = rest
	}
	out.params = latest(m.tensorParams[params:len(m.tensorParams):len(m.tensorParams)])
	m.outputs = append(m.outputs, out)
	return m.checkEntries(len(m.outputs))
}

// appendDims appends the dimensions of a packed shape.
func appendDims(dst []int64, b []byte) ([]int64, error) {
	for len(b) > 0 {
		v, rest, err := takeVarint(b)
		if err != nil {
			return dst, err
		}
		if dst, err = appendDim(dst, v); err != nil {
			return dst, err
		}
		b = rest
	}
	return dst, nil
}

func appendDim(dst []int64, v uint64) ([]int64, error) {
	if len(dst) >= maxDims {
		return dst, errTooMany
	}
	return append(dst, int64(v)), nil
}
