package trace

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"shoal/internal/tensor"
)

// eventNames are the names of what protocols record.
var eventNames = [...]struct{ received, read, answered, sent string }{
	HTTP: {"HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"},
	GRPC: {"GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"},

	Session: {"SESSION_RECV_START", "SESSION_RECV_END", "SESSION_SEND_START", "SESSION_SEND_END"},
}

// An Event is something that happened at one time.
type Event struct {
	Name string
	At   time.Time
}

// before and after are what the protocol recorded before and after the model's work.
func (t *Trace) before() []Event {
	n := &eventNames[t.Protocol]
	return []Event{{n.received, t.Received}, {n.read, t.Read}}
}

func (t *Trace) after() []Event {
	n := &eventNames[t.Protocol]
	return []Event{{n.answered, t.Answered}, {n.sent, t.Sent}}
}

func (r *Run) completions() (list []Event) {
	for _, at := range r.Responses() {
		list = append(list, Event{"INFER_RESPONSE_COMPLETE", at})
	}
	return list
}

// Events returns what happened to the call as a whole. Events without a time did not
// happen.
func (t *Trace) Events() []Event {
	return append(append(t.before(), t.Run.completions()...), t.after()...)
}

// Events returns what happened to the request apart from its execution.
func (r *Run) Events() []Event {
	return []Event{{"REQUEST_START", r.Start}, {"QUEUE_START", r.Queued}, {"REQUEST_END", r.End}}
}

// Events returns what happened in the execution.
func (b *Batch) Events() []Event {
	return []Event{
		{"COMPUTE_START", b.Start},
		{"COMPUTE_INPUT_END", b.InputsReady},
		{"COMPUTE_OUTPUT_START", b.OutputsOut},
		{"COMPUTE_END", b.End},
	}
}

// A writer appends the objects of a trace in Triton's format.
type writer struct {
	b     []byte
	nanos func(time.Time) int64
}

// appendJSON appends the trace's objects, in the order in which Triton writes them: over
// gRPC what the protocol recorded comes last.
func (t *Trace) appendJSON(b []byte, nanos func(time.Time) int64) []byte {
	w := writer{b, nanos}
	stamps := t.level&Timestamps != 0
	first := &t.Run
	if stamps && t.Protocol != GRPC {
		w.events(first.ID, t.before())
	}
	w.run(first, stamps, t.Protocol != GRPC)
	if stamps && t.Protocol == GRPC {
		w.events(first.ID, t.before())
		w.events(first.ID, first.completions())
	}
	if stamps {
		w.events(first.ID, t.after())
	}
	for _, r := range t.calls {
		w.run(r, stamps, false)
	}
	return w.b
}

// run writes what happened to one run.
func (w *writer) run(r *Run, stamps, completions bool) {
	e := r.Events()
	if stamps && !r.Start.IsZero() {
		w.model(r)
		w.events(r.ID, e[:2])
	}
	if len(r.text) > 0 {
		w.comma()
		w.b = append(w.b, r.text...)
	}
	if !stamps {
		return
	}
	if completions {
		w.events(r.ID, r.completions())
	}
	if r.Batch != nil {
		w.events(r.ID, r.Batch.Events())
	}
	w.events(r.ID, e[2:])
}

func (w *writer) comma() {
	if len(w.b) > 0 {
		w.b = append(w.b, ',')
	}
}

func (w *writer) id(id uint64) {
	w.comma()
	w.b = strconv.AppendUint(append(w.b, `{"id":`...), id, 10)
}

func (w *writer) model(r *Run) {
	w.id(r.ID)
	w.b = appendQuoted(append(w.b, `,"model_name":`...), r.Model)
	w.b = strconv.AppendInt(append(w.b, `,"model_version":`...), r.Version, 10)
	if r.RequestID != "" {
		w.b = appendQuoted(append(w.b, `,"request_id":`...), r.RequestID)
	}
	if r.Parent != 0 {
		w.b = strconv.AppendUint(append(w.b, `,"parent_id":`...), r.Parent, 10)
	}
	w.b = append(w.b, '}')
}

func (w *writer) events(id uint64, list []Event) {
	for _, e := range list {
		if e.At.IsZero() {
			continue
		}
		w.id(id)
		w.b = append(append(append(w.b, `,"timestamps":[{"name":"`...), e.Name...), `","ns":`...)
		w.b = append(strconv.AppendInt(w.b, w.nanos(e.At), 10), `}]}`...)
	}
}

// appendTensor appends a tensor's object: its values and dimensions are lists within
// texts. A tensor with fewer bytes than its shape needs ends early.
func appendTensor(b []byte, id uint64, activity, name string, typ tensor.Type, shape tensor.Shape, data []byte) []byte {
	w := writer{b: b}
	w.id(id)
	w.b = append(append(append(w.b, `,"activity":"`...), activity...), `","tensor":{"name":`...)
	w.b = append(appendQuoted(w.b, name), `,"data":"`...)
	w.b = append(appendValues(w.b, typ, data), `","shape":"`...)
	for i, d := range shape {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = strconv.AppendInt(w.b, d, 10)
	}
	w.b = append(append(append(w.b, `","dtype":"`...), typ.String()...), `"}}`...)
	return w.b
}

func appendValues(b []byte, typ tensor.Type, data []byte) []byte {
	size := typ.Size()
	for i := 0; len(data) > 0; i++ {
		if typ == tensor.Bytes {
			if len(data) < 4 {
				return b
			}
			size = 4 + int(binary.LittleEndian.Uint32(data))
		}
		if size <= 0 || size > len(data) {
			return b
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, typ, data[:size])
		data = data[size:]
	}
	return b
}

func appendValue(b []byte, typ tensor.Type, v []byte) []byte {
	le := binary.LittleEndian
	switch typ {
	case tensor.Bool:
		if v[0] != 0 {
			return append(b, '1')
		}
		return append(b, '0')
	case tensor.FP16:
		return appendFloat(b, float64(tensor.HalfToFloat(le.Uint16(v))))
	case tensor.BF16:
		return appendFloat(b, float64(math.Float32frombits(uint32(le.Uint16(v))<<16)))
	case tensor.FP32:
		return appendFloat(b, float64(math.Float32frombits(le.Uint32(v))))
	case tensor.FP64:
		return appendFloat(b, math.Float64frombits(le.Uint64(v)))
	case tensor.Bytes:
		return appendInner(b, string(v[4:]))
	}
	return tensor.AppendInteger(b, typ, v)
}

// appendFloat writes six digits, as Triton does.
func appendFloat(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "nan"...)
	case math.IsInf(v, 1):
		return append(b, "inf"...)
	case math.IsInf(v, -1):
		return append(b, "-inf"...)
	}
	return strconv.AppendFloat(b, v, 'g', 6, 64)
}

func appendQuoted(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: trace: a string cannot be written as JSON: " + err.Error())
	}
	return append(b, text...)
}

// appendInner writes a text in quotes within a text in quotes.
func appendInner(b []byte, s string) []byte {
	outer := appendQuoted(nil, string(appendQuoted(nil, s)))
	return append(b, outer[1:len(outer)-1]...)
}
