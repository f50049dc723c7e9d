package session

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
	"unsafe"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// protocolVersion changes when the format of messages or memory does.
const protocolVersion = 1

// The kinds of message on the socket. All numbers are little-endian.
const (
	// from the client
	msgHello  = 1 // version u32, the model's version i64, its name
	msgRoom   = 2 // slot u32, bytes u64: memory for the inputs of a slot's calls
	msgCancel = 3 // slot u32, call u32
	msgWake   = 4 // the ring has calls

	// from the server
	msgWelcome = 65 // version u32, slots u32, bytes u64, then the model's metadata as JSON; with the client's and the server's page
	msgRegion  = 66 // slot u32, side u32, generation u32, bytes u64; with the memory
	msgRefused = 67 // slot u32, code u32, then a text: a request for memory, or the session, is refused
	msgAnswers = 68 // calls that an event loop waits for have their answers
)

const (
	maxSlots   = 256 // calls of a session in flight; a power of two
	maxMessage = 4 << 10
	maxTable   = 64 << 10 // bytes of a call's table
	maxRank    = 32
	maxText    = 4 << 10 // bytes of an error's text in an answer

	pageSize = 4096

	// The client's page: the number of calls that it has added; the ring of their
	// slots; by slot, how it waits for the answer.
	tailAt  = 0
	ringAt  = 64
	waitsAt = ringAt + 4*maxSlots

	// The server's page: whether the server polls the ring; how many other calls
	// were in flight, of all clients, when the last one was answered: then a client
	// sleeps at once, since its core is needed; by slot, the last answered call and
	// the generation of the memory that has the answer.
	pollingAt = 0
	busyAt    = 4
	answersAt = 64

	// How a client waits for an answer.
	waitSleeps = 1 // a thread sleeps on the word
	waitLoop   = 2 // an event loop wants msgAnswers

	// The header of a slot's inputs: call u32, bytes of the table u32. The table
	// follows.
	inHead = 8
	// The header of its outputs: call u32, code u32 (0 is success, else a
	// status.Code and 1), bytes of the table u32, outputs u16, parameters u16, the
	// model's version i64.
	outHead = 24

	sideIn, sideOut = 0, 1
	minRegion       = 64 << 10
	alignment       = 64
)

func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

var le = binary.LittleEndian

// errWire is the error of a client that does not follow the protocol.
var errWire = errors.New("the client does not follow the protocol")

// A hello is a client's first message.
type hello struct {
	protocol uint32
	version  int64
	model    string
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) < 16 || le.Uint32(b) != msgHello {
		return h, errWire
	}
	h.protocol, h.version, h.model = le.Uint32(b[4:]), int64(le.Uint64(b[8:])), string(b[16:])
	return h, nil
}

// A message is a later message of a client.
type message struct {
	kind, slot, call uint32
	bytes            uint64
}

func parseMessage(b []byte) (m message, err error) {
	if len(b) < 4 {
		return m, errWire
	}
	m.kind = le.Uint32(b)
	switch {
	case m.kind == msgWake && len(b) == 4:
		return m, nil
	case m.kind == msgRoom && len(b) == 16:
		m.slot, m.bytes = le.Uint32(b[4:]), le.Uint64(b[8:])
	case m.kind == msgCancel && len(b) == 12:
		m.slot, m.call = le.Uint32(b[4:]), le.Uint32(b[8:])
	default:
		return m, errWire
	}
	if m.slot >= maxSlots {
		return m, errWire
	}
	return m, nil
}

// A reader reads a table. After the first value that is not there, all are zero
// and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() int {
	if b := r.take(2); b != nil {
		return int(le.Uint16(b))
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// text returns a string that aliases the table.
func (r *reader) text(n int) string {
	b := r.take(n)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// errTable is the error of a call whose table cannot be read.
var errTable = errors.New("the table of the call cannot be read")

// parseTable fills in r from a call's table, which must stay as it is until r is
// released. Data are parts of memory, the slot's inputs.
//
// The table has: inputs u16, wanted outputs u16, parameters u16, bytes of the id
// u16, priority u64, timeout in microseconds u64, the id; for each input type u8,
// rank u8, bytes of its name u16, offset u64, bytes u64, dimensions i64, its name;
// for each wanted output the bytes of its name u16 and its name; for each
// parameter kind u8, nothing u8, bytes of its name u16 and of its value u32, its
// name and its value.
func parseTable(table, memory []byte, r *infer.Request) error {
	t := reader{b: table}
	inputs, wanted, params, id := t.u16(), t.u16(), t.u16(), t.u16()
	r.Priority = t.u64()
	r.Timeout = microseconds(t.u64())
	r.ID = t.text(id)
	for range inputs {
		kind, rank, name := t.u8(), int(t.u8()), t.u16()
		offset, size := t.u64(), t.u64()
		if t.bad || rank > maxRank || offset > uint64(len(memory)) || size > uint64(len(memory))-offset {
			return errTable
		}
		in := r.AddInput()
		in.Type, in.Shape = tensor.Type(kind), r.Dims(rank)
		for range rank {
			in.Shape = append(in.Shape, int64(t.u64()))
		}
		in.Name = t.text(name)
		in.Data = infer.Data{First: memory[offset : offset+size : offset+size]}
	}
	for range wanted {
		if t.bad {
			return errTable
		}
		r.Outputs = append(r.Outputs, infer.Wanted{Name: t.text(t.u16())})
	}
	for range params {
		p, ok := t.param()
		if !ok {
			return errTable
		}
		r.Params = append(r.Params, p)
	}
	if t.bad || len(t.b) > 0 {
		return errTable
	}
	return nil
}

func microseconds(n uint64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond
}

func (r *reader) param() (p infer.Param, ok bool) {
	kind := infer.ParamKind(r.u8())
	r.u8()
	name, size := r.u16(), r.u32()
	if size > maxTable {
		return p, false
	}
	p.Name, p.Kind = r.text(name), kind
	value := reader{b: r.take(int(size))}
	switch kind {
	case infer.ParamString:
		p.String = value.text(int(size))
	case infer.ParamInt:
		p.Int = int64(value.u64())
	case infer.ParamUint:
		p.Uint = value.u64()
	case infer.ParamFloat:
		p.Float = math.Float64frombits(value.u64())
	case infer.ParamBool:
		p.Bool = value.u8() != 0
	default:
		return p, false
	}
	return p, !r.bad && !value.bad && len(value.b) == 0
}

// answerSize returns the bytes of a response's table, and of all of it in a slot.
func answerSize(resp *infer.Response) (table, all int) {
	for i := range resp.Outputs {
		o := &resp.Outputs[i]
		table += 20 + 8*len(o.Shape) + len(o.Name)
	}
	for i := range resp.Params {
		p := &resp.Params[i]
		table += 16 + len(p.Name) + len(p.String)
	}
	all = align(outHead + table)
	for i := range resp.Outputs {
		all = align(all + len(resp.Outputs[i].Data))
	}
	return table, all
}

// writeAnswer writes a response to memory, which is large enough by answerSize. An
// output has: type u8, rank u8, bytes of its name u16, offset u64, bytes u64,
// dimensions i64, its name; a parameter is as in a call's table.
func writeAnswer(memory []byte, call uint32, resp *infer.Response) {
	table, _ := answerSize(resp)
	at := align(outHead + table)
	b := memory[:outHead]
	for i := range resp.Outputs {
		o := &resp.Outputs[i]
		b = append(b, byte(o.Type), byte(len(o.Shape)))
		b = le.AppendUint16(b, uint16(len(o.Name)))
		b = le.AppendUint64(b, uint64(at))
		b = le.AppendUint64(b, uint64(len(o.Data)))
		for _, d := range o.Shape {
			b = le.AppendUint64(b, uint64(d))
		}
		b = append(b, o.Name...)
		copy(memory[at:], o.Data)
		at = align(at + len(o.Data))
	}
	for i := range resp.Params {
		b = appendParam(b, &resp.Params[i])
	}
	le.PutUint32(memory, call)
	le.PutUint32(memory[4:], 0)
	le.PutUint32(memory[8:], uint32(len(b)-outHead))
	le.PutUint16(memory[12:], uint16(len(resp.Outputs)))
	le.PutUint16(memory[14:], uint16(len(resp.Params)))
	le.PutUint64(memory[16:], uint64(resp.Version))
}

func appendParam(b []byte, p *infer.Param) []byte {
	size := 8
	switch p.Kind {
	case infer.ParamString:
		size = len(p.String)
	case infer.ParamBool:
		size = 1
	}
	b = append(b, byte(p.Kind), 0)
	b = le.AppendUint16(b, uint16(len(p.Name)))
	b = le.AppendUint32(b, uint32(size))
	b = append(b, p.Name...)
	switch p.Kind {
	case infer.ParamString:
		return append(b, p.String...)
	case infer.ParamInt:
		return le.AppendUint64(b, uint64(p.Int))
	case infer.ParamUint:
		return le.AppendUint64(b, p.Uint)
	case infer.ParamFloat:
		return le.AppendUint64(b, math.Float64bits(p.Float))
	}
	value := byte(0)
	if p.Bool {
		value = 1
	}
	return append(b, value)
}

// writeError writes the answer of a call that failed.
func writeError(memory []byte, call uint32, code uint32, text string) {
	text = text[:min(len(text), maxText)]
	le.PutUint32(memory, call)
	le.PutUint32(memory[4:], code+1)
	le.PutUint32(memory[8:], uint32(len(text)))
	le.PutUint32(memory[12:], 0)
	le.PutUint64(memory[16:], 0)
	copy(memory[outHead:], text)
}
