package python

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// The messages of calls; python/shoal/_calls.py has the other end. A call is a
// header, a table (what is called, and where its inputs are in the slot) and
// what is rarer, as JSON. Calls of one place in a model have the same table, which
// is parsed once.
const (
	callHead       = 56
	callDecoupled  = 1
	callDirect     = 2 // the thread that called waits for the answer in the slot
	callUncached   = 4 // the table is not likely to occur again
	maxCallMessage = 16 << 20
	maxCallTables  = 256

	answerFinal = 1
	answerEmpty = 2 // there is no response, only the end
	answerFault = 4
)

// A callMessage is a worker's request to another model.
type callMessage struct {
	id        uint32
	number    int    // of the slot
	batch     uint64 // the batch that waits for the answer; 0 when none does
	size      uint64 // of the inputs in the worker's half
	timeout   int64  // microseconds
	sequence  uint64
	flags     byte
	decoupled bool
	direct    bool
	table     *callTable
	extras    callExtras
}

// callExtras is what few calls have.
type callExtras struct {
	ID         string         `json:"id"`
	SequenceID string         `json:"sequence_id"`
	Priority   uint64         `json:"priority"`
	Params     map[string]any `json:"params"`
	// Trace is the request whose trace the call is a part of: the number of its batch
	// and its index there.
	Trace *[2]uint64 `json:"trace"`
}

// A callTable says what is called with which inputs.
type callTable struct {
	model   string
	version int64
	wanted  []string
	inputs  []callTensor
}

// A callTensor is an input of a call and where it is in the slot.
type callTensor struct {
	name         string
	typ          tensor.Type
	shape        tensor.Shape
	offset, size uint64
}

// callTables are the tables that were parsed, by their bytes.
type callTables map[string]*callTable

// read reads a message, in memory that the worker cannot change.
func (msg *callMessage) read(b []byte, tables *callTables) error {
	if len(b) < callHead {
		return wireFault("a call of %d bytes", len(b))
	}
	le := binary.LittleEndian
	msg.id, msg.number, msg.batch, msg.size = le.Uint32(b), int(le.Uint32(b[4:])), le.Uint64(b[8:]), le.Uint64(b[16:])
	msg.timeout, msg.sequence = int64(le.Uint64(b[24:])), le.Uint64(b[32:])
	table, extras := le.Uint32(b[40:]), le.Uint32(b[44:])
	msg.flags, msg.decoupled, msg.direct = b[48], b[49]&callDecoupled != 0, b[49]&callDirect != 0
	if rest := uint64(len(b) - callHead); uint64(table)+uint64(extras) != rest {
		return wireFault("a call has %d bytes after its header, and says %d and %d", rest, table, extras)
	}
	if extras > 0 {
		if err := json.Unmarshal(b[callHead+table:], &msg.extras); err != nil {
			return wireFault("a call that cannot be read: %v", err)
		}
	}
	uncached := b[49]&callUncached != 0
	b = b[callHead : callHead+table]
	if msg.table = (*tables)[string(b)]; msg.table != nil {
		return nil
	}
	var err error
	if msg.table, err = readCallTable(b); err != nil || uncached {
		return err
	}
	if *tables == nil || len(*tables) >= maxCallTables {
		*tables = make(callTables)
	}
	(*tables)[string(b)] = msg.table
	return nil
}

// readCallTable parses a table.
func readCallTable(b []byte) (*callTable, error) {
	r := callReader{b: b}
	t := &callTable{version: int64(r.uint64())}
	wanted, inputs, name := r.uint16(), r.uint16(), r.uint16()
	t.model = r.text(name)
	for range wanted {
		t.wanted = append(t.wanted, r.text(r.uint16()))
		if r.short {
			break
		}
	}
	for range inputs {
		var in callTensor
		size := r.uint16()
		kind := r.uint16()
		rank := kind >> 8
		in.typ = tensor.Type(kind & 0xff)
		in.name = r.text(size)
		if rank > maxRank {
			return nil, wireFault("input '%s' of a call has %d dimensions", in.name, rank)
		}
		for range rank {
			in.shape = append(in.shape, int64(r.uint64()))
		}
		in.offset, in.size = r.uint64(), r.uint64()
		if r.short {
			break
		}
		t.inputs = append(t.inputs, in)
	}
	if r.short || len(r.b) > 0 {
		return nil, wireFault("the table of a call has %d bytes, which is not what it says", len(b))
	}
	return t, nil
}

// A callReader reads a table. What is missing is zero, and sets short.
type callReader struct {
	b     []byte
	short bool
}

func (r *callReader) next(n int) []byte {
	if n > len(r.b) {
		r.short = true
		r.b = nil
		return make([]byte, n) // at most 64 KiB
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *callReader) uint16() int       { return int(binary.LittleEndian.Uint16(r.next(2))) }
func (r *callReader) uint64() uint64    { return binary.LittleEndian.Uint64(r.next(8)) }
func (r *callReader) text(n int) string { return string(r.next(n)) }

// fill makes a request of the message.
func (msg *callMessage) fill(r *infer.Request, s *slot) error {
	if err := s.see(int(msg.size)); err != nil {
		return err
	}
	r.Model, r.Version, r.ID, r.Priority = msg.table.model, msg.table.version, msg.extras.ID, msg.extras.Priority
	r.Timeout = time.Duration(msg.timeout) * time.Microsecond
	r.Sequence = infer.Sequence{ID: msg.sequence, StringID: msg.extras.SequenceID, Start: msg.flags&1 != 0, End: msg.flags&2 != 0}
	for name, value := range msg.extras.Params {
		p, err := callParam(name, value)
		if err != nil {
			return err
		}
		r.Params = append(r.Params, p)
	}
	for _, name := range msg.table.wanted {
		r.Outputs = append(r.Outputs, infer.Wanted{Name: name})
	}
	for i := range msg.table.inputs {
		t := &msg.table.inputs[i]
		if t.offset > msg.size || t.size > msg.size-t.offset {
			return status.Errorf(status.InvalidArgument, "input '%s' has %d bytes at %d of %d", t.name, t.size, t.offset, msg.size)
		}
		in := r.AddInput()
		in.Name, in.Type, in.Shape = t.name, t.typ, append(r.Dims(len(t.shape)), t.shape...)
		data := s.out[t.offset : t.offset+t.size]
		// Strings must not change after they were checked, and a decoupled model may
		// use its inputs after its last response, when the worker uses the slot again.
		if in.Type == tensor.Bytes || msg.decoupled {
			data = append(r.Grow(len(data))[:0], data...)
		}
		in.Data = infer.Data{First: data}
	}
	return nil
}

func callParam(name string, value any) (infer.Param, error) {
	switch v := value.(type) {
	case string:
		return infer.Param{Name: name, Kind: infer.ParamString, String: v}, nil
	case bool:
		return infer.Param{Name: name, Kind: infer.ParamBool, Bool: v}, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return infer.Param{Name: name, Kind: infer.ParamInt, Int: int64(v)}, nil
		}
		return infer.Param{Name: name, Kind: infer.ParamFloat, Float: v}, nil
	}
	return infer.Param{}, status.Errorf(status.InvalidArgument, "parameter '%s' is of a type that requests cannot carry", name)
}

// answered returns the message of a response whose outputs are in the slot one
// after the other. It is valid until the next answer.
func (k *call) answered(resp *infer.Response, size int, final bool) ([]byte, error) {
	var params []byte
	if len(resp.Params) > 0 {
		values := make(map[string]any, len(resp.Params))
		for i := range resp.Params {
			values[resp.Params[i].Name] = paramValue(&resp.Params[i])
		}
		var err error
		if params, err = json.Marshal(values); err != nil { // a parameter that is no number
			return nil, status.Wrap(status.Internal, err, fmt.Sprintf("the answer of a called model cannot be told: %v", err))
		}
	}
	b := k.head(0, 0, len(resp.Outputs), 0, len(params), size, final)
	le := binary.LittleEndian
	at := headSize
	for i := range resp.Outputs {
		out := &resp.Outputs[i]
		b = append(le.AppendUint16(b, uint16(len(out.Name))), byte(out.Type), byte(len(out.Shape)))
		b = append(b, out.Name...)
		for _, d := range out.Shape {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint64(le.AppendUint64(b, uint64(at)), uint64(len(out.Data)))
		at = align(at + len(out.Data))
	}
	k.answer = append(b, params...)
	return k.answer, nil
}

// failed returns the message of an error.
func (k *call) failed(err error, final bool) []byte {
	text := status.Public(err)
	return append(k.head(answerFault, byte(status.CodeOf(err)), 0, len(text), 0, 0, final), text...)
}

// empty returns the message of an end without a response.
func (k *call) empty() []byte { return k.head(answerEmpty, 0, 0, 0, 0, 0, true) }

func (k *call) head(flags, code byte, outputs, text, params, size int, final bool) []byte {
	if final {
		flags |= answerFinal
	}
	le := binary.LittleEndian
	b := append(le.AppendUint32(k.answer[:0], k.id), flags, code)
	b = le.AppendUint16(b, uint16(outputs))
	b = le.AppendUint32(le.AppendUint32(b, uint32(text)), uint32(params))
	return le.AppendUint64(b, uint64(size))
}

func paramValue(p *infer.Param) any {
	switch p.Kind {
	case infer.ParamInt:
		return p.Int
	case infer.ParamUint:
		return p.Uint
	case infer.ParamFloat:
		return p.Float
	case infer.ParamBool:
		return p.Bool
	}
	return p.String
}
