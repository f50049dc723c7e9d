package kservegrpc

import (
	"encoding/binary"
	"math"
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/status"
	"shoal/internal/tensor"
	"shoal/internal/trace"
)

// encoded is an answer in the form in which it goes out: a buffer, and perhaps an
// output that lies in the memory of the model and is lent.
type encoded struct {
	data   [2]mem.Buffer
	n      int
	lender lender
	trace  *trace.Trace // ends when the answer is sent; nil for none
}

// buffers returns the answer's bytes.
func (e *encoded) buffers() mem.BufferSlice { return e.data[:e.n] }

// Lends implements grpcserver.Lender.
func (e *encoded) Lends() bool { return e.n > 1 }

// Sent implements grpcserver.Lender.
func (e *encoded) Sent() {
	if e.trace != nil {
		e.trace.End()
		e.trace = nil
	}
}

// len returns the answer's bytes; nil has none.
func (e *encoded) len() int {
	if e == nil {
		return 0
	}
	return e.buffers().Len()
}

// A reply is what a ModelInferResponse is made of.
type reply struct {
	resp *infer.Response
	id   string
	// final says whether a stream's answer is the last to its request.
	final finalFlag
}

// A finalFlag is the value of the parameter that closes a stream's answers.
type finalFlag uint8

const (
	finalNone finalFlag = iota // the parameter is left out
	finalFalse
	finalTrue
)

func finalMark(last bool) finalFlag {
	if last {
		return finalTrue
	}
	return finalFalse
}

// free gives the memory back of an answer that nobody will send; nil has none.
func (e *encoded) free() {
	if e != nil {
		e.buffers().Free()
		e.Sent()
	}
}

// An encoder makes answers in the memory that it is given.
type encoder struct {
	limit  int // of an answer, in bytes
	memory *inflight.Pool
}

// infer returns r as a ModelInferResponse. It fails when that is larger than
// the limit, or when there is no memory for it.
func (x encoder) infer(r reply) (*encoded, error) {
	size := r.size()
	return x.claim(size, 0, r.append)
}

// stream returns r as the infer_response of a ModelStreamInferResponse. It
// fails as infer does. The stream holds so many bytes already.
func (x encoder) stream(r reply, held int64) (*encoded, error) {
	inner := r.size()
	return x.claim(sizeMessage(inner), held, func(b []byte) []byte {
		return r.append(appendHead(b, 2, inner))
	})
}

// streamError returns a ModelStreamInferResponse with an error's text. The rest
// of r tells the client which of its requests failed.
func (x encoder) streamError(r reply, text string) *encoded {
	inner := r.size()
	size := sizeString(text) + sizeMessage(inner)
	return x.fill(x.memory.Get(size), size, func(b []byte) []byte {
		b = appendString(b, 1, text)
		return r.append(appendHead(b, 2, inner))
	})
}

// claim lends write a buffer of size bytes, if that is within the limits.
func (x encoder) claim(size int, held int64, write func([]byte) []byte) (*encoded, error) {
	if err := checkSize(size, x.limit); err != nil {
		return nil, err
	}
	buf, err := x.memory.Claim(size, held)
	if err != nil {
		return nil, err
	}
	return x.fill(buf, size, write), nil
}

// fill has write fill the buffer with exactly size bytes.
func (x encoder) fill(buf *[]byte, size int, write func([]byte) []byte) *encoded {
	e := new(encoded)
	writeExactly((*buf)[:0:size], write)
	e.data[0], e.n = mem.NewBuffer(buf, x.memory), 1
	return e
}

func writeExactly(b []byte, write func([]byte) []byte) []byte {
	size := cap(b)
	if b = write(b); len(b) != size {
		panic("BUG: kservegrpc: a response of " + strconv.Itoa(len(b)) + " bytes was sized " + strconv.Itoa(size))
	}
	return b
}

func checkSize(size, limit int) error {
	if size > limit {
		return status.Errorf(status.InvalidArgument, "Response has byte size %d which exceeds gRPC's byte size limit %d.", size, limit)
	}
	return nil
}

// finalParams are on the answers to a request of a stream.
var finalParams = [...]infer.Param{
	finalFalse: {Name: "triton_final_response", Kind: infer.ParamBool, Bool: false},
	finalTrue:  {Name: "triton_final_response", Kind: infer.ParamBool, Bool: true},
}

// size returns the bytes that append will write.
func (r reply) size() int {
	n := sizeString(r.resp.Model) + sizeString(r.id)
	if r.versioned() {
		n += sizeMessage(decimals(r.resp.Version))
	}
	for i := range r.resp.Params {
		n += sizeMessage(sizeEntry(&r.resp.Params[i]))
	}
	if r.final != finalNone {
		n += sizeMessage(sizeEntry(&finalParams[r.final]))
	}
	for i := range r.resp.Outputs {
		out := &r.resp.Outputs[i]
		n += sizeMessage(sizeTensor(out)) + sizeMessage(len(out.Data))
	}
	return n
}

// append writes a ModelInferResponse.
func (r reply) append(b []byte) []byte {
	b = r.appendHead(b)
	if n := len(r.resp.Outputs); n > 0 {
		b = append(b, r.resp.Outputs[n-1].Data...)
	}
	return b
}

// noVersion is the version of an answer that shows none, as Triton's errors do.
const noVersion = -1

// versioned reports whether the answer shows a version. A request that failed
// before it had a model shows none.
func (r reply) versioned() bool { return r.resp.Model != "" && r.resp.Version != noVersion }

// appendHead writes it without the data of the last output, which ends it.
func (r reply) appendHead(b []byte) []byte {
	b = appendString(b, 1, r.resp.Model)
	if r.versioned() {
		b = appendHead(b, 2, decimals(r.resp.Version))
		b = strconv.AppendInt(b, r.resp.Version, 10)
	}
	b = appendString(b, 3, r.id)
	for i := range r.resp.Params {
		b = appendEntry(b, &r.resp.Params[i])
	}
	if r.final != finalNone {
		b = appendEntry(b, &finalParams[r.final])
	}
	for i := range r.resp.Outputs {
		b = appendTensor(b, &r.resp.Outputs[i])
	}
	for i := range r.resp.Outputs {
		data := r.resp.Outputs[i].Data
		if b = appendHead(b, 6, len(data)); i < len(r.resp.Outputs)-1 {
			b = append(b, data...)
		}
	}
	return b
}

// sizeTensor and appendTensor are for an InferOutputTensor, whose data goes
// elsewhere.
func sizeTensor(out *infer.Output) int {
	n := sizeString(out.Name) + sizeString(out.Type.String())
	if len(out.Shape) > 0 {
		n += sizeMessage(sizeShape(out.Shape))
	}
	return n
}

func appendTensor(b []byte, out *infer.Output) []byte {
	b = appendHead(b, 5, sizeTensor(out))
	b = appendString(b, 1, out.Name)
	b = appendString(b, 2, out.Type.String())
	if len(out.Shape) > 0 {
		b = appendHead(b, 3, sizeShape(out.Shape))
		for _, d := range out.Shape {
			b = protowire.AppendVarint(b, uint64(d))
		}
	}
	return b
}

func sizeShape(s tensor.Shape) int {
	n := 0
	for _, d := range s {
		n += protowire.SizeVarint(uint64(d))
	}
	return n
}

// sizeEntry and appendEntry are for an entry of a map of parameters.
func sizeEntry(p *infer.Param) int {
	return sizeString(p.Name) + sizeMessage(sizeValue(p))
}

func appendEntry(b []byte, p *infer.Param) []byte {
	b = appendHead(b, 4, sizeEntry(p))
	b = appendString(b, 1, p.Name)
	b = appendHead(b, 2, sizeValue(p))
	switch p.Kind {
	case infer.ParamBool:
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeBool(p.Bool))
	case infer.ParamInt:
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(p.Int))
	case infer.ParamString:
		b = append(appendHead(b, 3, len(p.String)), p.String...)
	case infer.ParamFloat:
		b = protowire.AppendTag(b, 4, protowire.Fixed64Type)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.Float))
	case infer.ParamUint:
		b = protowire.AppendTag(b, 5, protowire.VarintType)
		b = protowire.AppendVarint(b, p.Uint)
	}
	return b
}

func sizeValue(p *infer.Param) int {
	switch p.Kind {
	case infer.ParamBool:
		return 2
	case infer.ParamInt:
		return 1 + protowire.SizeVarint(uint64(p.Int))
	case infer.ParamString:
		return sizeMessage(len(p.String)) // set even when empty
	case infer.ParamFloat:
		return 9
	case infer.ParamUint:
		return 1 + protowire.SizeVarint(p.Uint)
	}
	return 0
}

// All fields here have numbers below 16, whose tags take one byte.

// sizeMessage returns the bytes of a field of n bytes with its tag and length.
func sizeMessage(n int) int { return 1 + protowire.SizeBytes(n) }

// sizeString is sizeMessage for a string, which is left out when empty.
func sizeString(s string) int {
	if s == "" {
		return 0
	}
	return sizeMessage(len(s))
}

// appendHead appends the tag and length of a field of n bytes.
func appendHead(b []byte, num protowire.Number, n int) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(n))
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return append(appendHead(b, num, len(s)), s...)
}

// decimals returns the length of n in decimal digits, with its sign.
func decimals(n int64) int {
	var digits [20]byte
	return len(strconv.AppendInt(digits[:0], n, 10))
}
